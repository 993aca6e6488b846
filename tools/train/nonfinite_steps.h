// Checks the reports of every step: whether the loss is finite, and the norm of the gradients. The
// norm covers every value that reaches a weight: the sum of the squares of all gradients is finite
// only if each gradient is finite. With a loss scale that adapts, a report has the scale, and a
// norm alone that is not finite is no error unless the scale is too small for an overflow
// (runtime/base/loss_scale.h). Such a norm is no overflow either if the update gathers the
// gradients of several steps (update_every), and the loss of one of these steps is not finite.
//
//   Look(step) in order, for each reported step -> a line for people; under kStop, first() once
//   there is such a step
//
// Not here: skipping updates, which the plan itself does (on_nonfinite.h); finding the tensor
// (JobRunner::InspectStep). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "tools/train/metric_log.h"
#include "tools/train/on_nonfinite.h"

namespace weir::train {

struct NonfiniteStep {
  int64_t step = 0;          // from 0
  bool loss_is_bad = false;  // false: only the norm is bad
  std::string found;         // "loss nan, gradient norm inf"
};

enum class LossScale : uint8_t { kNoneOrFixed, kAdapts };

// Returns the advice to a run that ends because its loss or its gradients are not finite, the most
// likely remedy first. `first` is the text of FindFirstTensor (JobRunner::InspectStep) and may be
// empty.
std::string AdviceOnNonfinite(const proto::Training& training, const std::string& first);

class RunSoFar;  // run_so_far.h

class NonfiniteSteps {
 public:
  // `loss` is the name of the loss among the metrics. `run` counts the updates that are left out,
  // over all starts of the run, and must outlive this object.
  NonfiniteSteps(OnNonfinite on_nonfinite, LossScale loss_scale, const std::string& loss,
                 RunSoFar* run)
      : on_nonfinite_(on_nonfinite), loss_scale_(loss_scale), loss_(loss), run_(run) {}

  // Returns a line for people, or nothing. With a loss scale that adapts, adds the updates that the
  // run has left out so far to the report as "skipped_updates".
  std::string Look(int64_t step, StepMetrics* report);

  // The first step whose loss or norm is not finite.
  const std::optional<NonfiniteStep>& first() const { return first_; }
  // The first step whose update the plan leaves out because of an error. Under kStop no state has
  // changed since before that step. Without a loss scale that adapts, the norm alone makes the plan
  // do so; with such a scale, the loss does, too.
  std::optional<int64_t> first_left_out() const { return first_left_out_; }
  // Returns a line for the end of the run on the updates that were left out, under kSkip or with a
  // loss scale that adapts; empty if none was.
  std::string Summary() const;

 private:
  std::string LineOfOverflow(int64_t step, double scale) const;
  std::string LineOfSkip(const NonfiniteStep& bad) const;

  const OnNonfinite on_nonfinite_;
  const LossScale loss_scale_;
  const std::string loss_;
  RunSoFar* const run_;
  std::optional<NonfiniteStep> first_;
  std::optional<int64_t> first_left_out_;
  // The last step whose loss is not finite, if no report since then has the norm of an update.
  std::optional<int64_t> bad_loss_;
  bool warned_ = false;
};

}  // namespace weir::train
