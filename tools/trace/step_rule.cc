#include "tools/trace/step_rule.h"

#include <algorithm>

namespace weir::trace {

StepActor::Kind StepKindOf(absl::string_view phase) {
  if (phase == "metric") return StepActor::Kind::kReport;
  return phase == "boxing" ? StepActor::Kind::kTransfer : StepActor::Kind::kWork;
}

std::vector<char> ActorsThatEndSteps(const std::vector<StepActor>& actors, int32_t num_registers) {
  std::vector<int32_t> writer(num_registers, -1), readers_left(num_registers, 0),
      writes_left(actors.size(), 0);
  for (size_t a = 0; a < actors.size(); ++a) {
    for (int32_t r : actors[a].reads) ++readers_left[r];
    for (int32_t r : actors[a].writes) writer[r] = static_cast<int32_t>(a);
    writes_left[a] = static_cast<int32_t>(actors[a].writes.size());
  }
  std::vector<char> ends_step(actors.size(), 1);
  std::vector<int32_t> reports;  // whose inputs are still to be looked at
  const auto is_report = [&](int32_t a) {
    ends_step[a] = 0;
    reports.push_back(a);
  };
  for (size_t a = 0; a < actors.size(); ++a) {
    if (actors[a].kind == StepActor::Kind::kReport) is_report(static_cast<int32_t>(a));
    if (actors[a].kind != StepActor::Kind::kTransfer || actors[a].writes.empty()) continue;
    for (int32_t r : actors[a].writes) writes_left[a] -= readers_left[r] == 0;
    if (writes_left[a] == 0) is_report(static_cast<int32_t>(a));
  }
  while (!reports.empty()) {
    const int32_t report = reports.back();
    reports.pop_back();
    for (int32_t r : actors[report].reads) {
      if (--readers_left[r] > 0 || writer[r] < 0) continue;
      const int32_t a = writer[r];
      if (--writes_left[a] == 0 && ends_step[a]) is_report(a);
    }
  }
  if (std::find(ends_step.begin(), ends_step.end(), 1) == ends_step.end())
    ends_step.assign(actors.size(), 1);
  return ends_step;
}

}  // namespace weir::trace
