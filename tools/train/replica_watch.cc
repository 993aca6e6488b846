#include "tools/train/replica_watch.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/train/replica_check.h"

namespace weir::train {

void ReplicaWatch::GoBackTo(int64_t steps_done) {
  has_replicas_ = true;
  last_step_ = first_step_;
  if (equal_step_.has_value() && *equal_step_ <= steps_done) return;
  // Nothing is known of steps that are done again.
  begin_step_ = equal_step_.has_value() ? steps_done : std::min(begin_step_, steps_done);
  equal_step_.reset();
}

absl::Status ReplicaWatch::Look(int64_t steps_done, bool before_checkpoint, JobRunner* runner) {
  const bool is_time = steps_done - last_step_ >= every_ || before_checkpoint;
  if (every_ == 0 || !has_replicas_ || steps_done == last_step_ || !is_time)
    return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::vector<ShardSum> sums, runner->SumWeights());
  last_step_ = steps_done;
  has_replicas_ = HasReplicas(sums);
  if (!has_replicas_) return absl::OkStatus();
  const std::optional<Divergence> divergence = FindDivergence(sums);
  if (!divergence.has_value()) {
    equal_step_ = steps_done;
    return absl::OkStatus();
  }
  const int64_t good_step = equal_step_.value_or(begin_step_);
  return ErrorOf(absl::StatusCode::kDataLoss,
                 {"W0757", absl::StrCat("step ", steps_done),
                  "the same bits of a weight on all ranks that hold the weight",
                  absl::StrCat(DivergenceText(*divergence),
                               equal_step_.has_value()
                                   ? "; the ranks were last compared, and equal, after step "
                                   : "; nobody has compared the ranks since the start at step ",
                               good_step),
                  absl::StrCat(good_step == 0 ? "start the run again"
                                              : absl::StrCat("resume from a checkpoint of step ",
                                                             good_step, " or before"),
                               ", and test the memory of that machine")});
}

}  // namespace weir::train
