// These checks hold the operands of kernels of softmax and its gradient to what the kernels expect.
// Each check returns the status of a SpecCheck. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckSoftmax(const KernelSpec& spec);
absl::Status CheckSoftmaxGrad(const KernelSpec& spec);

}  // namespace weir::kernels
