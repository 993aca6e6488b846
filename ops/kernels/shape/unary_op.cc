#include "ops/kernels/shape/unary_op.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

struct Named {
  Unary function;
  const char* name;
  bool has_grad;
};
#define WEIR_UNARY_NAME(id, name, Code, has_grad) {Unary::id, name, has_grad},
constexpr Named kNames[] = {WEIR_UNARY_FUNCTIONS(WEIR_UNARY_NAME)};
#undef WEIR_UNARY_NAME

// The attributes that hold the constants, in order.
std::vector<std::string> ConstantsOf(Unary function) {
  switch (function) {
    case Unary::kLeakyRelu: return {"slope"};
    case Unary::kElu: return {"alpha"};
    case Unary::kClamp: return {"min", "max"};
    case Unary::kPower: return {"exponent"};
    default: return {};
  }
}

}  // namespace

std::vector<UnaryOp> UnaryOps() {
  std::vector<UnaryOp> ops;
  for (const Named& known : kNames) {
    if (known.function == Unary::kNone) continue;
    ops.push_back({known.name, known.function, UnaryPart::kValue});
    if (known.has_grad)
      ops.push_back({std::string(known.name) + "_grad", known.function, UnaryPart::kGrad});
  }
  return ops;
}

absl::StatusOr<UnaryConstants> CheckUnary(const UnaryOp& op, const KernelSpec& spec) {
  const int num_inputs = op.part == UnaryPart::kValue ? 1 : 2;
  SpecCheck check(spec);
  check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Real(check.in(0), "x");
  if (op.part == UnaryPart::kGrad) {
    check.SameType(check.in(0), check.in(1), "x and dy")
        .SameShape(check.in(0), check.in(1), "x and dy");
  }
  const char* names = op.part == UnaryPart::kValue ? "x and y" : "x and dx";
  check.SameType(check.in(0), check.out(0), names).SameShape(check.in(0), check.out(0), names);
  UnaryConstants constants;
  float* next = &constants.first;
  for (const std::string& name : ConstantsOf(op.function)) {
    check.Expect(spec.attrs.Has(name), "attribute " + name);
    if (check.ok()) *next = static_cast<float>(spec.attrs.Real(name));
    next = &constants.second;
  }
  if (!check.ok()) return check.status();
  return constants;
}

}  // namespace weir::kernels
