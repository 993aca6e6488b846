#include "ops/kernels/shape/reduce_check.h"

#include <vector>

#include "ops/kernels/shape/axis_groups.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {

absl::Status CheckReduce(const KernelSpec& spec) {
  SpecCheck check(spec);
  std::vector<int64_t> axes = spec.attrs.Ints("axes");
  check.Inputs(1, 1).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "y");
  check.Expect(LegalAxes(check.in(0).shape, axes), "axes of x, each once");
  if (check.ok())
    check.Expect(check.out(0).shape == KeptShape(check.in(0).shape, axes),
                 "y without the reduced axes");
  return check.status();
}

absl::Status CheckExpand(const KernelSpec& spec) {
  SpecCheck check(spec);
  std::vector<int64_t> axes = spec.attrs.Ints("axes");
  check.Inputs(1, 1)
      .Outputs(1, 1)
      .Real(check.in(0), "dy")
      .SameType(check.in(0), check.out(0), "dy and dx");
  check.Expect(LegalAxes(check.out(0).shape, axes), "axes of dx, each once");
  if (check.ok())
    check.Expect(check.in(0).shape == KeptShape(check.out(0).shape, axes),
                 "dy without the repeated axes");
  return check.status();
}

absl::Status CheckReduceMaxGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  std::vector<int64_t> axes = spec.attrs.Ints("axes");
  check.Inputs(3, 3)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameShape(check.in(0), check.out(0), "x and dx");
  for (int i = 1; i < 3; ++i) check.SameType(check.in(0), check.in(i), "x, y and dy");
  check.SameType(check.in(0), check.out(0), "x and dx")
      .SameShape(check.in(1), check.in(2), "y and dy");
  check.Expect(LegalAxes(check.in(0).shape, axes), "axes of x, each once");
  if (check.ok())
    check.Expect(check.in(1).shape == KeptShape(check.in(0).shape, axes),
                 "y without the reduced axes");
  return check.status();
}

}  // namespace weir::kernels
