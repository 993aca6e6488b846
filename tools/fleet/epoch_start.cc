#include "tools/fleet/epoch_start.h"

#include "absl/strings/str_cat.h"

namespace weir::fleet {

WorkerStanding StandingOn(uint32_t mesh, const MeshesOfStates& of, const WorkerStanding& standing) {
  WorkerStanding counts;
  if (of.ranks == mesh) counts.resting_step = standing.resting_step;
  if (of.copies != mesh) return counts;
  counts.kept_step = standing.kept_step;
  counts.older_kept_step = standing.older_kept_step;
  counts.guarded = standing.guarded;
  return counts;
}

EpochStart ChooseStart(const RecoveryPlan& plan, int64_t file_step) {
  const bool has_states = plan.step >= 0 && plan.step >= file_step;
  return {has_states ? plan.step : file_step, has_states};
}

absl::StatusOr<Leaving> ChooseLeaving(const WorkerStanding& standing, bool goes_on,
                                      int64_t first_step) {
  if (!goes_on) return Leaving::kForgetsCopy;
  if (standing.kept_step == first_step || standing.older_kept_step == first_step)
    return Leaving::kKeepsCopy;
  if (standing.resting_step == first_step) return Leaving::kCopiesRanks;
  return absl::InternalError(absl::StrCat("the states of step ", first_step,
                                          " are not here, but of step ", standing.kept_step));
}

}  // namespace weir::fleet
