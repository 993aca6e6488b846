// The ops that compare numbers and make masks: each element of y says whether a relation holds
// between an element of a and one of b, or the attribute `value`. Operands repeat as those of add.
#include "absl/strings/str_cat.h"
#include "ops/defs/broadcast.h"
#include "ops/defs/flops.h"
#include "ops/defs/operand_check.h"

namespace weir::ops {
namespace {

struct Relation {
  const char* name;
  const char* formula;
};

// The kernels of the rows are in ops/kernels/cpu/masks.cc.
constexpr Relation kRelations[] = {
    {"equal", "a is equal to b"},
    {"not_equal", "a is not equal to b; a number that is not one (NaN) is equal to nothing"},
    {"less", "a is less than b"},
    {"less_equal", "a is not above b"},
    {"greater", "a is greater than b"},
    {"greater_equal", "a is not below b"},
};

OpDef CompareDef(const Relation& relation) {
  OpDef def;
  def.schema = {.name = relation.name,
                .doc = absl::StrCat("y = whether ", relation.formula, ", element by element."),
                .inputs = {{.name = "a", .doc = "any shape and element type"},
                           {.name = "b",
                            .optional = true,
                            .doc = "like a, aligned and repeated as by add; absent: `value`"}},
                .outputs = {{.name = "y", .doc = "bool, the dimensions of both"}},
                .attrs = {{"value", AttrKind::kReal, 0.0, "b of all elements, if b is absent"}},
                .factors = "..., ... -> ..., without those along which an operand repeats"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"a", "b"});
    return InferBroadcast(in, check.SameType(1, 0), DType::kBool);
  };
  def.rule = BroadcastRule;
  def.flops = FlopsPerOutput(1);
  return def;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Relation& relation : kRelations) OpRegistry::Register(CompareDef(relation));
  return true;
}();

}  // namespace
}  // namespace weir::ops
