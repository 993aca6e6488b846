#include "ops/kernels/shape/softmax_check.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {

absl::Status CheckSoftmax(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(1, 1).Real(check.in(0), "x").MinRank(check.in(0), 1, "x");
  check.SameType(check.in(0), check.out(0), "x and y")
      .SameShape(check.in(0), check.out(0), "x and y");
  return check.status();
}

absl::Status CheckSoftmaxGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "y").MinRank(check.in(0), 1, "y");
  check.SameType(check.in(0), check.in(1), "y and dy")
      .SameShape(check.in(0), check.in(1), "y and dy");
  check.SameType(check.in(0), check.out(0), "y and dx")
      .SameShape(check.in(0), check.out(0), "y and dx");
  return check.status();
}

}  // namespace weir::kernels
