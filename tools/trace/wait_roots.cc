#include "tools/trace/wait_roots.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

// Waits that wait for waits are followed no deeper; what is left counts as between acts.
constexpr int kDepthMax = 64;

class RootFinder {
 public:
  explicit RootFinder(const RecordedRun& run)
      : run_(run), first_(run.times.FirstSteady()), begin_(run.times.steps[first_].begin) {}

  std::vector<WaitRoot> Find() && {
    int64_t num_queues = 0;
    for (const RecordedRank& rank : run_.ranks) {
      num_queues += rank.num_queues;
      for (const RecordedAct& act : rank.acts) {
        if (act.wait == RecordedAct::Wait::kNone) continue;
        Divide(act, std::max(rank.FreeSince(act, begin_), begin_), std::min(act.ready, act.start),
               0);
      }
    }
    return Sorted(num_queues);
  }

 private:
  struct Sum {
    int64_t ns = 0;
    std::set<RankId> ranks;
  };
  using Key = std::pair<WaitRoot::Kind, std::string>;

  void Add(WaitRoot::Kind kind, const std::string& name, RankId rank, int64_t from, int64_t to) {
    const int64_t ns = from < to ? run_.times.Inside(from, to, first_) : 0;
    if (ns == 0) return;
    Sum& sum = sums_[{kind, kind == WaitRoot::Kind::kBetweenActs ? "" : LayerFamily(name)}];
    sum.ns += ns;
    sum.ranks.insert(rank);
  }

  const RecordedRank& RankOf(const RecordedAct& act) const {
    return run_.ranks[run_.actors[act.actor].rank_index];
  }
  // Divides [from, to), in which the queue of `act` waited for what `act` needs.
  void Divide(const RecordedAct& act, int64_t from, int64_t to, int depth) {
    if (from >= to) return;
    const RecordedAct* cause = depth < kDepthMax ? run_.Cause(act) : nullptr;
    if (cause == nullptr) return Add(WaitRoot::Kind::kBetweenActs, "", RankOf(act).rank, from, to);
    const RecordedRank& other = RankOf(*cause);
    const int64_t sent = std::clamp(cause->end, from, to);
    Add(WaitRoot::Kind::kWay, run_.registers[act.waited_register].family, other.rank, sent, to);
    DividePast(other, *cause, from, sent, depth);
  }

  // Divides [from, to) by what the queue of `last` did up to the end of `last`.
  void DividePast(const RecordedRank& rank, const RecordedAct& last, int64_t from, int64_t to,
                  int depth) {
    for (const RecordedAct* act = &last; from < to;) {
      const int64_t start = std::clamp(act->start, from, to);
      Add(WaitRoot::Kind::kWork, run_.actors[act->actor].function, rank.rank, start, to);
      const int64_t free = std::clamp(rank.FreeSince(*act, begin_), from, start);
      const int64_t ready =
          act->wait == RecordedAct::Wait::kNone ? free : std::clamp(act->ready, free, start);
      Add(WaitRoot::Kind::kBetweenActs, "", rank.rank, ready, start);
      Divide(*act, free, ready, depth + 1);
      to = free;
      if (act->previous < 0) break;
      act = &rank.acts[act->previous];
    }
    Add(WaitRoot::Kind::kBetweenActs, "", rank.rank, from, to);
  }

  std::vector<WaitRoot> Sorted(int64_t num_queues) const {
    int64_t all = 0;
    for (const auto& [key, sum] : sums_) all += sum.ns;
    const double steps = static_cast<double>(run_.times.steps.size() - first_);
    std::vector<WaitRoot> roots;
    for (const auto& [key, sum] : sums_) {
      roots.push_back({key.first, key.second,
                       std::vector<RankId>(sum.ranks.begin(), sum.ranks.end()),
                       static_cast<double>(sum.ns) / static_cast<double>(all),
                       static_cast<double>(sum.ns) / steps / static_cast<double>(num_queues)});
    }
    std::stable_sort(roots.begin(), roots.end(),
                     [](const WaitRoot& a, const WaitRoot& b) { return a.share > b.share; });
    return roots;
  }

  const RecordedRun& run_;
  const size_t first_;
  const int64_t begin_;
  std::map<Key, Sum> sums_;
};

}  // namespace

std::string Name(WaitRoot::Kind kind) {
  switch (kind) {
    case WaitRoot::Kind::kWork: return "work";
    case WaitRoot::Kind::kWay: return "on the way";
    case WaitRoot::Kind::kBetweenActs: return "between acts";
  }
  return "";
}

std::vector<WaitRoot> FindWaitRoots(const RecordedRun& run) { return RootFinder(run).Find(); }

}  // namespace weir::trace
