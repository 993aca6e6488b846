// These checks hold the operands of softmax_cross_entropy, of its parts over shards of the
// vocabulary, and of accuracy to what the kernels expect, and read the attributes that say how a
// target counts. The checks return the status of a SpecCheck. Thread rule: values and pure
// functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

// IgnoredTarget is the value of the targets that do not count, if there is one.
struct IgnoredTarget {
  explicit IgnoredTarget(const Attributes& attrs);
  bool Is(int32_t target) const { return exists && target == value; }

  bool exists = false;
  int32_t value = 0;
};

// TargetWeights are those of a target that label_smoothing may have smoothed.
struct TargetWeights {
  TargetWeights(const TensorSlice& logits, const Attributes& attrs);

  float of_target;  // the weight of the target's own logit
  float of_each;    // the weight that each logit has besides
};

absl::Status CheckCrossEntropy(const KernelSpec& spec);
absl::Status CheckCrossEntropyGrad(const KernelSpec& spec);
absl::Status CheckExpSumPick(const KernelSpec& spec);
absl::Status CheckCrossEntropyFinish(const KernelSpec& spec);
absl::Status CheckAccuracy(const KernelSpec& spec);

}  // namespace weir::kernels
