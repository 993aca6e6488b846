#include "tools/view/planned_columns.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace weir::view {
namespace {

bool IsOfPipeline(const std::string& phase) {
  return phase == "forward" || phase == "backward" || phase == "weight gradient";
}

}  // namespace

void AddPlannedColumns(const trace::RecordedRun& run, const std::vector<trace::ReplayedAct>& acts,
                       BundleWriter* writer) {
  std::vector<trace::ReplayedAct> shown;
  for (const trace::ReplayedAct& act : acts) {
    if (IsOfPipeline(run.actors[act.actor].phase)) shown.push_back(act);
  }
  std::stable_sort(
      shown.begin(), shown.end(),
      [](const trace::ReplayedAct& a, const trace::ReplayedAct& b) { return a.begin < b.begin; });
  std::vector<double> begin, ns;
  std::vector<uint32_t> actor;
  std::vector<int32_t> micro_batch;
  for (const trace::ReplayedAct& act : shown) {
    begin.push_back(static_cast<double>(act.begin - shown[0].begin));
    ns.push_back(static_cast<double>(act.end - act.begin));
    actor.push_back(static_cast<uint32_t>(act.actor.value()));
    micro_batch.push_back(static_cast<int32_t>(run.actors[act.actor].MicroBatchOf(act.number)));
  }
  writer->Add("planned_begin", begin);
  writer->Add("planned_ns", ns);
  writer->Add("planned_actor", actor);
  writer->Add("planned_micro_batch", micro_batch);
}

}  // namespace weir::view
