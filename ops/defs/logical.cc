// logical_and, logical_or, logical_xor and logical_not: masks of masks.
#include "absl/strings/str_cat.h"
#include "ops/defs/broadcast.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {
namespace {

struct Connective {
  const char* name;
  const char* formula;
  int num_inputs;
};

// The kernels of the rows are in ops/kernels/cpu/masks.cc.
constexpr Connective kConnectives[] = {
    {"logical_and", "both a and b are true", 2},
    {"logical_or", "a or b or both are true", 2},
    {"logical_xor", "one of a and b is true, and the other is not", 2},
    {"logical_not", "a is false", 1},
};

OpDef LogicalDef(const Connective& connective) {
  OpDef def;
  def.schema = {.name = connective.name,
                .doc = absl::StrCat("y = whether ", connective.formula, ", element by element."),
                .inputs = {{.name = "a", .doc = "bool, any shape"}},
                .outputs = {{.name = "y", .doc = "bool, the dimensions of all inputs"}},
                .factors = "..., ... -> ..., without those along which an operand repeats"};
  if (connective.num_inputs == 1) {
    def.schema.factors = "... -> ...";
  } else {
    def.schema.inputs.push_back(
        {.name = "b", .doc = "bool, aligned with a and repeated as by add"});
  }
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"a", "b"});
    return InferBroadcast(in, check.Is(0, DType::kBool).Is(1, DType::kBool), DType::kBool);
  };
  def.rule = BroadcastRule;
  def.flops = FlopsPerOutput(1);
  return def;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Connective& connective : kConnectives) OpRegistry::Register(LogicalDef(connective));
  return true;
}();

}  // namespace
}  // namespace weir::ops
