// Looks at what every step reports: is the loss finite, and the norm of the gradients? The norm
// covers every value that reaches a weight: the sum of the squares of all gradients is finite only
// if each of them is.
//
//   Look(step) in order, for each step reported -> what to tell people; under kStop, first() once
//   there is one
//
// Not here: leaving updates out, which the plan does by itself (on_nonfinite.h); finding the tensor
// (JobRunner::InspectStep). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/train/metric_log.h"
#include "tools/train/on_nonfinite.h"

namespace weir {

struct NonfiniteStep {
  int64_t step = 0;          // from 0
  bool loss_is_bad = false;  // else only the norm is
  std::string found;         // "loss nan, gradient norm inf"
};

class NonfiniteSteps {
 public:
  // `loss` is the name of the loss among the metrics.
  NonfiniteSteps(OnNonfinite on_nonfinite, const std::string& loss)
      : on_nonfinite_(on_nonfinite), loss_(loss) {}

  // A line for people, or nothing.
  std::string Look(int64_t step, const StepMetrics& metrics);

  // The first step of which the loss or the norm is not finite.
  const std::optional<NonfiniteStep>& first() const { return first_; }
  // The first of which the norm is not: under kStop no weight has changed since before it.
  std::optional<int64_t> first_bad_norm() const { return first_bad_norm_; }
  int64_t num_skipped() const { return num_skipped_; }  // updates, under kSkip

 private:
  std::string LineOfSkip(const NonfiniteStep& bad);

  const OnNonfinite on_nonfinite_;
  const std::string loss_;
  std::optional<NonfiniteStep> first_;
  std::optional<int64_t> first_bad_norm_;
  int64_t num_skipped_ = 0;
  bool warned_ = false;
};

}  // namespace weir
