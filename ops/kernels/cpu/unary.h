// The functions of one element (unary_function.h) over ranges of elements. Thread rule: pure.
#pragma once

#include <cstdint>

#include "ops/kernels/shape/unary_function.h"
#include "runtime/base/dtype.h"

namespace weir::kernels {

// Sets y[i] = function(x[i]) for i < n, for a function without constants; y may be x. Vectorised,
// on the calling thread.
void ApplyUnary(Unary function, DType dtype, const void* x, void* y, int64_t n);

}  // namespace weir::kernels
