// These checks hold the operands of kernels of layer_norm, rms_norm and their gradients to what the
// kernels expect. Each check returns the status of a SpecCheck. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckLayerNorm(const KernelSpec& spec);
absl::Status CheckRmsNorm(const KernelSpec& spec);
absl::Status CheckLayerNormGrad(const KernelSpec& spec);
absl::Status CheckRmsNormGrad(const KernelSpec& spec);

}  // namespace weir::kernels
