#include "tools/train/update_lines.h"

#include "absl/strings/str_cat.h"

namespace weir::train {

std::vector<std::string> UpdateLines(const UpdateRate& updates, int64_t steps) {
  std::vector<std::string> lines;
  if (updates.delay > 0) {
    lines.push_back(absl::StrCat(
        "gradients are ", updates.delay, updates.delay == 1 ? " update" : " updates",
        " old; the first ",
        updates.delay == 1 ? "update leaves" : absl::StrCat(updates.delay, " updates leave"),
        " the weights as they are"));
  }
  if (updates.every == 1) return lines;
  const int64_t rest = steps - updates.RoundDown(steps);
  lines.push_back(absl::StrCat("weights are updated every ", updates.every,
                               " steps, first in step ", updates.phase + 1));
  if (rest > 0) {
    lines.push_back(absl::StrCat("WARNING: the last update is in step ", steps - rest, " of ",
                                 steps, ": the gradients of the ",
                                 rest == 1 ? "step" : absl::StrCat(rest, " steps"),
                                 " after it change nothing"));
  }
  return lines;
}

}  // namespace weir::train
