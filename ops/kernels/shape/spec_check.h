// A SpecCheck states a kernel factory's expectations of its operands as a chain. The first
// expectation that fails becomes the status, and later expectations are skipped.
//
// A SpecCheck guards against a plan that does not fit the kernel, so that Run need not check.
// Absent operands read as an empty f32 scalar. Thread rule: one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

class SpecCheck {
 public:
  explicit SpecCheck(const KernelSpec& spec) : spec_(spec) {}

  bool HasIn(int i) const {
    return i < static_cast<int>(spec_.inputs.size()) && spec_.inputs[i].has_value();
  }
  bool HasOut(int i) const {
    return i < static_cast<int>(spec_.outputs.size()) && spec_.outputs[i].has_value();
  }
  const TensorSlice& in(int i) const;
  const TensorSlice& out(int i) const;

  // Expects that the first `required` operands are present, and that there are at most `limit`.
  SpecCheck& Inputs(int required, int limit);
  SpecCheck& Outputs(int required, int limit);
  SpecCheck& Real(const TensorSlice& operand, const char* name);
  SpecCheck& Is(const TensorSlice& operand, DType dtype, const char* name);
  SpecCheck& SameType(const TensorSlice& a, const TensorSlice& b, const char* names);
  SpecCheck& SameShape(const TensorSlice& a, const TensorSlice& b, const char* names);
  SpecCheck& MinRank(const TensorSlice& operand, int rank, const char* name);
  // `what` completes "expects".
  SpecCheck& Expect(bool holds, const std::string& what);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  const KernelSpec& spec_;
  absl::Status status_;
};

// Returns the product of all sizes but the last `drop`.
int64_t LeadingElements(const TensorSlice& operand, int drop);
// Returns the size of the axis counted from the end, 1 being the last.
int64_t SizeFromEnd(const TensorSlice& operand, int from_end);

// Returns a shape without its last `drop` axes.
Shape LeadingShape(const TensorSlice& operand, int drop);

}  // namespace weir::kernels
