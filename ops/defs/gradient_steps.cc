#include "ops/defs/gradient_steps.h"

#include "absl/strings/str_cat.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {

ValueId OutputGrad(GradientBuilder& b, int output) {
  ValueId grad = b.output_grad(output);
  if (grad < 0) return grad;
  // A gradient has the element type of its value, except f32 gradients of parameters and
  // broadcast operands, which may reach a bf16 value here.
  DType found = b.type(grad).dtype, wanted = b.output_type(output).dtype;
  if (found == wanted) return grad;
  return Add1(b, "cast", {grad}, {{"to", std::string(Name(wanted))}});
}

absl::Status ExpectNoGrad(GradientBuilder& b, const std::string& op, int output,
                          const std::string& name) {
  if (b.output_grad(output) < 0) return absl::OkStatus();
  return Rejected({"W0315", "", absl::StrCat("no gradient through output ", name, " of ", op),
                   absl::StrCat(name, " used on the way to the loss"),
                   "compute it with other ops"});
}

ValueId Add1(GradientBuilder& b, const std::string& op, const std::vector<ValueId>& inputs,
             Attributes attrs) {
  return b.Add(op, inputs, std::move(attrs))[0];
}

void SetGrad(GradientBuilder& b, int input, ValueId grad) {
  const std::vector<sbp::TensorDim> wanted = b.input_type(input).dims;
  if (b.type(grad).dims != wanted) {
    grad = Add1(b, "reshape", {grad}, {{"to", DimsText(wanted)}});
  }
  b.SetInputGrad(input, grad);
}

ValueId SumOver(GradientBuilder& b, ValueId grad, const std::vector<int64_t>& axes) {
  if (axes.empty()) return grad;
  return Add1(b, "reduce_sum", {grad}, {{"axes", axes}, {"out_dtype", std::string("f32")}});
}

}  // namespace weir::ops
