#include "actors/engine/stall_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/engine/wait_graph.h"

namespace weir::actors {

std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max) {
  const std::vector<Wait> waits = ListWaits(ranks);
  std::string text;
  for (size_t i = 0; i < waits.size(); ++i) {
    if (static_cast<int>(i) == lines_max) {
      absl::StrAppend(&text, "\n  and ", waits.size() - i, " more");
      break;
    }
    absl::StrAppend(&text, "\n  ", ToLine(waits[i]));
  }
  const char* before = "\n  why: ";
  for (const std::string& line : ExplainWaits(waits)) {
    absl::StrAppend(&text, before, line);
    before = "\n  ";
  }
  return text;
}

}  // namespace weir::actors
