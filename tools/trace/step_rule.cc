#include "tools/trace/step_rule.h"

#include <algorithm>

namespace weir::trace {

StepActor::Kind StepKindOf(absl::string_view phase) {
  if (phase == "metric") return StepActor::Kind::kReport;
  return phase == "boxing" ? StepActor::Kind::kTransfer : StepActor::Kind::kWork;
}

IdVector<RecordedActorId, char> ActorsThatEndSteps(
    const IdVector<RecordedActorId, StepActor>& actors, int32_t num_registers) {
  IdVector<RecordedRegisterId, RecordedActorId> writer(num_registers);
  IdVector<RecordedRegisterId, int32_t> readers_left(num_registers, 0);
  IdVector<RecordedActorId, int32_t> writes_left(actors.size(), 0);
  for (const RecordedActorId a : actors.ids()) {
    for (const RecordedRegisterId r : actors[a].reads) ++readers_left[r];
    for (const RecordedRegisterId r : actors[a].writes) writer[r] = a;
    writes_left[a] = static_cast<int32_t>(actors[a].writes.size());
  }
  IdVector<RecordedActorId, char> ends_step(actors.size(), 1);
  std::vector<RecordedActorId> reports;  // whose inputs are still to be looked at
  const auto is_report = [&](RecordedActorId a) {
    ends_step[a] = 0;
    reports.push_back(a);
  };
  for (const RecordedActorId a : actors.ids()) {
    if (actors[a].kind == StepActor::Kind::kReport) is_report(a);
    if (actors[a].kind != StepActor::Kind::kTransfer || actors[a].writes.empty()) continue;
    for (const RecordedRegisterId r : actors[a].writes) writes_left[a] -= readers_left[r] == 0;
    if (writes_left[a] == 0) is_report(a);
  }
  while (!reports.empty()) {
    const RecordedActorId report = reports.back();
    reports.pop_back();
    for (const RecordedRegisterId r : actors[report].reads) {
      if (--readers_left[r] > 0 || !writer[r].has_value()) continue;
      const RecordedActorId a = writer[r];
      if (--writes_left[a] == 0 && ends_step[a]) is_report(a);
    }
  }
  if (std::find(ends_step.begin(), ends_step.end(), 1) == ends_step.end())
    ends_step.assign(actors.size(), 1);
  return ends_step;
}

}  // namespace weir::trace
