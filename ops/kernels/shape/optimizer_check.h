// These checks hold the operands of kernels of updates, sum_squares, clip_scale and
// adapt_loss_scale to what the kernels expect. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {

// Checks an update that works element by element: inputs are a gradient, a scale and operands like
// the gradient, and all outputs are like the gradient, too.
void CheckUpdate(SpecCheck* check, int inputs_max, int outputs_min, int outputs_max);

absl::Status CheckAdamW(const KernelSpec& spec);
absl::Status CheckSgd(const KernelSpec& spec);
absl::Status CheckSumSquares(const KernelSpec& spec);
absl::Status CheckClipScale(const KernelSpec& spec);
absl::Status CheckAdaptLossScale(const KernelSpec& spec);

}  // namespace weir::kernels
