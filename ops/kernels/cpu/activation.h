// Activations that may follow a matmul or stand alone. Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/dtype.h"

namespace weir::kernels {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluExact, kSilu };

// Accepts "none", "relu", "gelu", "gelu_exact", "silu"; returns nullopt for another name.
std::optional<Activation> ActivationFromName(const std::string& name);

// Sets y[i] = activation(x[i]) for i < n; y may be x. Vectorised, on the calling thread.
void Activate(Activation activation, DType dtype, const void* x, void* y, int64_t n);

// Sets dx[i] = dy[i] * activation'(x[i]). For relu, x may also be the result. dx may be dy.
void ActivateGrad(Activation activation, DType dtype, const void* x, const void* dy, void* dx,
                  int64_t n);

}  // namespace weir::kernels
