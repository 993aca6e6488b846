#include "tools/trace/rank_classes.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/id_vector.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

constexpr size_t kClassesNamed = 8;

}  // namespace

RankClass ClassOfItself(RankId rank) {
  RankClass itself{rank, {}};
  itself.ranks.Add(rank);
  return itself;
}

RankClass ClassOf(RankId rank, const proto::PlanFacts& facts) {
  RankClass of{rank, {}};
  for (const proto::RankRange& range : facts.stands_for()) {
    if (!of.ranks.Add(RankRanges::Range{range.first(), range.stride(), range.count()}))
      return ClassOfItself(rank);
  }
  return of.ranks.Has(rank) ? of : ClassOfItself(rank);
}

std::vector<RankId> RanksInNoClass(int64_t num_ranks, const std::vector<RankClass>& classes) {
  std::vector<char> is_in_a_class(static_cast<size_t>(num_ranks), 0);
  int64_t left = num_ranks;  // classes share no rank; the file of a hostile author may say else
  for (const RankClass& of : classes) {
    if (of.ranks.size() > left) continue;
    left -= of.ranks.size();
    for (const RankRanges::Range& range : of.ranks.ranges()) {
      for (int64_t rank = range.first; rank <= range.last() && rank < num_ranks;
           rank += range.stride)
        is_in_a_class[static_cast<size_t>(rank)] = 1;
    }
  }
  std::vector<RankId> ranks;
  for (const RankId rank : IdRange<RankId>(static_cast<int32_t>(num_ranks))) {
    if (!is_in_a_class[static_cast<size_t>(rank.value())]) ranks.push_back(rank);
  }
  return ranks;
}

std::string NameOfClass(const std::string& name, const RankRanges& ranks) {
  return ranks.size() <= 1 ? name : absl::StrCat(name, " x", ranks.size());
}

std::string SymmetryText(const std::vector<RankClass>& classes) {
  int64_t num_ranks = 0;
  std::vector<std::string> texts;
  for (const RankClass& of : classes) {
    num_ranks += of.ranks.size();
    texts.push_back(absl::StrCat("rank ", of.rank, texts.empty() ? " stands for " : " for ",
                                 of.ranks.size() == 1 ? "rank " : "ranks ", of.ranks.Text()));
  }
  const int64_t simulated = static_cast<int64_t>(classes.size());
  if (num_ranks == simulated) return "";
  return absl::StrCat(num_ranks, " ranks are simulated by ", simulated, ": ",
                      Listed(texts, kClassesNamed));
}

}  // namespace weir::trace
