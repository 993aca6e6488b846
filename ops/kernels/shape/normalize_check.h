// These checks hold the operands of kernels of reduce_variance, normalize and their gradients to
// what the kernels expect. Each check returns the status of a SpecCheck. Thread rule: pure
// functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckVariance(const KernelSpec& spec);
absl::Status CheckVarianceGrad(const KernelSpec& spec);
absl::Status CheckNormalize(const KernelSpec& spec);
absl::Status CheckNormalizeGrad(const KernelSpec& spec);

// Returns what makes an unbiased variance of the variance of `count` numbers: count / (count - 1),
// or 1 of a single number.
float UnbiasedFactor(double count);

}  // namespace weir::kernels
