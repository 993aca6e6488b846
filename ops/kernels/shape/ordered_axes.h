// The axes of a transposed tensor in the order of the result y, with their strides in the operand
// x. Axes that are neighbours in both x and y are joined. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

struct OrderedAxis {
  int64_t size, stride;
};

// Returns the axes for the kernel of transpose; at least one. kInvalidArgument unless the operands
// and the attribute `perm` are those of the op.
absl::StatusOr<std::vector<OrderedAxis>> TransposedAxes(const KernelSpec& spec);

}  // namespace weir::kernels
