#include "tools/train/replica_watch.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/train/replica_check.h"

namespace weir::train {

absl::Status ReplicaWatch::Look(int64_t steps_done, bool before_checkpoint, JobRunner* runner) {
  const bool is_time = steps_done - last_step_ >= every_ || before_checkpoint;
  if (every_ == 0 || steps_done == last_step_ || !is_time) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::vector<ShardSum> sums, runner->SumWeights());
  const int64_t good_step = last_step_;
  last_step_ = steps_done;
  if (!HasReplicas(sums)) {
    every_ = 0;
    return absl::OkStatus();
  }
  const std::optional<Divergence> divergence = FindDivergence(sums);
  if (!divergence.has_value()) return absl::OkStatus();
  return ErrorOf(
      absl::StatusCode::kDataLoss,
      {"W0757", absl::StrCat("step ", steps_done),
       "the same bits of a weight on all ranks that hold the weight",
       absl::StrCat(DivergenceText(*divergence), "; no rank differed ",
                    good_step == 0 ? "at the start" : absl::StrCat("after step ", good_step)),
       absl::StrCat(good_step == 0 ? "start the run again"
                                   : absl::StrCat("resume from a checkpoint of step ", good_step,
                                                  " or before"),
                    ", and test the memory of that machine")});
}

}  // namespace weir::train
