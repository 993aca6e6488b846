#include "ops/kernels/shape/embedding_check.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {

absl::Status CheckEmbedding(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "table").Is(check.in(1), DType::kI32, "ids");
  check.SameType(check.in(0), check.out(0), "table and y")
      .Expect(check.in(0).shape.size() == 2, "table[v, h]");
  check.Expect(LeadingShape(check.out(0), 1) == check.in(1).shape, "y with the axes of ids");
  check.Expect(SizeFromEnd(check.out(0), 1) == SizeFromEnd(check.in(0), 1),
               "y as wide as the table");
  return check.status();
}

absl::Status CheckEmbeddingGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2)
      .Outputs(1, 1)
      .Is(check.in(0), DType::kI32, "ids")
      .Real(check.in(1), "dy")
      .Real(check.out(0), "dtable");
  check.Expect(check.out(0).shape.size() == 2, "dtable[v, h]");
  check.Expect(LeadingShape(check.in(1), 1) == check.in(0).shape, "dy with the axes of ids");
  check.Expect(SizeFromEnd(check.out(0), 1) == SizeFromEnd(check.in(1), 1), "dtable as wide as dy");
  check.Expect(check.in(0).num_elements() <= INT32_MAX, "at most 2^31 - 1 ids");
  return check.status();
}

}  // namespace weir::kernels
