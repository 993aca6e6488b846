// These checks hold the operands of kernels of adamw, sgd, sum_squares and clip_scale to what the
// kernels expect. Each check returns the status of a SpecCheck. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckAdamW(const KernelSpec& spec);
absl::Status CheckSgd(const KernelSpec& spec);
absl::Status CheckSumSquares(const KernelSpec& spec);
absl::Status CheckClipScale(const KernelSpec& spec);

}  // namespace weir::kernels
