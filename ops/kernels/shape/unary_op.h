// The ops of unary_function.h, and what their kernels on every device expect of operands and
// attributes. Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/unary_function.h"

namespace weir::kernels {

// Which op of a function a kernel computes: the function, or its gradient op.
enum class UnaryPart : uint8_t { kValue, kGrad };

struct UnaryOp {
  std::string name;
  Unary function;
  UnaryPart part;
};

// Returns the ops of all functions but "none".
std::vector<UnaryOp> UnaryOps();

// Returns the constants of the function. kInvalidArgument unless the operands are those of the op
// (x to y, or x or y and dy to dx, all of one real type and one shape) and the attributes that hold
// the constants are there.
absl::StatusOr<UnaryConstants> CheckUnary(const UnaryOp& op, const KernelSpec& spec);

}  // namespace weir::kernels
