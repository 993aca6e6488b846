// The layout of every tensor of a plan, with the reason: what `weir plan --layouts`, its JSON and
// the page of `weir view` show. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/compile.h"

namespace weir::plan {

struct TensorLayout {
  enum class Role : uint8_t {
    kWeight,
    kInput,
    kOutput,  // leaves the function
    kInside,  // stays in the function
  };
  std::string name;  // as people know the tensor; empty: a value without a name
  std::string what;  // "weight", "input", or the op that makes it: "matmul"
  Role role = Role::kInside;
  std::string type;    // "f32[batch, hidden]"
  std::string layout;  // "[dp: S(0), tp: B]"
  std::string reason;  // "dp: rule batch -> dp"
};

// The tensors of one function, in the order in which the function gets or computes them.
struct FunctionLayouts {
  std::string function;
  std::string first_call;  // "forward layers.0"; the names of values are those of this call
  int64_t calls = 0;       // in the program
  std::vector<TensorLayout> tensors;
};

// Returns all functions that the program calls, including those that the compiler adds (gradients,
// updates).
std::vector<FunctionLayouts> ListLayouts(const compiler::LogicalPlan& plan);

}  // namespace weir::plan
