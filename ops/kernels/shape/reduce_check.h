// These checks hold the operands of kernels of reductions, expand and reduce_max_grad to what the
// kernels expect. Each check returns the status of a SpecCheck. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckReduce(const KernelSpec& spec);
absl::Status CheckExpand(const KernelSpec& spec);
absl::Status CheckReduceMaxGrad(const KernelSpec& spec);

}  // namespace weir::kernels
