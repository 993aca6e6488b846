// These checks hold the operands of kernels of embedding and its gradient to what the kernels
// expect. Each check returns the status of a SpecCheck. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

absl::Status CheckEmbedding(const KernelSpec& spec);
absl::Status CheckEmbeddingGrad(const KernelSpec& spec);

}  // namespace weir::kernels
