#include "tools/launch/placement.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace weir::launch {
namespace {

constexpr char kRanksHint[] = "numbers and ranges with commas between them, such as 0,3-5";

// Parses a rank of decimal digits only: a sign would make a range ambiguous.
bool ParseRank(absl::string_view text, int* rank) {
  text = absl::StripAsciiWhitespace(text);
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(text, rank);
}

absl::Status AddRange(absl::string_view part, int num_ranks, std::set<RankId>* ranks) {
  const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
  int first = 0, last = 0;
  if (!ParseRank(ends.front(), &first) || !ParseRank(ends.back(), &last)) {
    return Rejected({"W0091", "ranks", "a rank or a range of ranks",
                     part.empty() ? "nothing" : absl::StrCat("'", part, "'"), kRanksHint});
  }
  if (first > last) {
    return Rejected({"W0091", "ranks", "a range that ascends", absl::StrCat("'", part, "'"),
                     absl::StrCat(last, "-", first)});
  }
  if (last >= num_ranks) {
    return Rejected({"W0091", "ranks", absl::StrCat("ranks from 0 to ", num_ranks - 1),
                     absl::StrCat("'", part, "'"), ""});
  }
  for (int rank = first; rank <= last; ++rank) ranks->insert(RankId(rank));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IdVector<WorkerId, WorkerPlacement>> PlaceRanks(int num_ranks, int num_processes) {
  if (num_processes < 1 || num_processes > num_ranks) {
    return Rejected({"W0090", "processes",
                     absl::StrCat(num_ranks == 1 ? "" : "1 to ", num_ranks,
                                  ", as many as the mesh has devices"),
                     absl::StrCat(num_processes), "another number of processes, or a larger mesh"});
  }
  IdVector<WorkerId, WorkerPlacement> placements;
  int next = 0;
  for (int process = 0; process < num_processes; ++process) {
    const int count = num_ranks / num_processes + (process < num_ranks % num_processes ? 1 : 0);
    WorkerPlacement placement;
    for (int i = 0; i < count; ++i) placement.ranks.push_back(RankId(next++));
    placement.label = RankLabel(placement.ranks);
    placements.push_back(std::move(placement));
  }
  return placements;
}

std::string RankLabel(const std::vector<RankId>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t begin = 0; begin < ranks.size();) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    absl::StrAppend(&text, begin > 0 ? "," : "", ranks[begin]);
    if (end - begin > 1) absl::StrAppend(&text, "-", ranks[end - 1]);
    begin = end;
  }
  return text;
}

absl::StatusOr<std::vector<RankId>> ParseRanks(const std::string& text, int num_ranks) {
  std::set<RankId> ranks;
  for (absl::string_view part : absl::StrSplit(text, ','))
    WEIR_RETURN_IF_ERROR(AddRange(part, num_ranks, &ranks));
  return std::vector<RankId>(ranks.begin(), ranks.end());
}

}  // namespace weir::launch
