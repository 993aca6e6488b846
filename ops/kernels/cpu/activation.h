// The activations that may follow a matmul or stand alone. Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/dtype.h"

namespace weir {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kSilu };

// "none", "relu", "gelu", "silu"; nullopt for another name.
std::optional<Activation> ActivationFromName(const std::string& name);

// y[i] = activation(x[i]) for i < n; y may be x. Vectorised, on the calling thread.
void Activate(Activation activation, DType dtype, const void* x, void* y, int64_t n);

// dx[i] = dy[i] * activation'(x[i]); for relu, x may as well be the result. dx may be dy.
void ActivateGrad(Activation activation, DType dtype, const void* x, const void* dy, void* dx,
                  int64_t n);

}  // namespace weir
