#include "ops/kernels/shape/spec_check.h"

#include "absl/strings/str_cat.h"

namespace weir::kernels {
namespace {

const TensorSlice& Absent() {
  static const auto* slice = new TensorSlice();
  return *slice;
}

std::string OperandsText(const std::vector<std::optional<TensorSlice>>& operands) {
  std::string text;
  for (const auto& operand : operands) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", operand ? ToText(*operand) : "absent");
  }
  return text;
}

}  // namespace

const TensorSlice& SpecCheck::in(int i) const { return HasIn(i) ? *spec_.inputs[i] : Absent(); }
const TensorSlice& SpecCheck::out(int i) const { return HasOut(i) ? *spec_.outputs[i] : Absent(); }

SpecCheck& SpecCheck::Inputs(int required, int limit) {
  bool present = static_cast<int>(spec_.inputs.size()) <= limit;
  for (int i = 0; i < required; ++i) present = present && HasIn(i);
  return Expect(present, absl::StrCat("inputs 0 to ", required - 1, " and at most ", limit));
}

SpecCheck& SpecCheck::Outputs(int required, int limit) {
  bool present = static_cast<int>(spec_.outputs.size()) <= limit;
  for (int i = 0; i < required; ++i) present = present && HasOut(i);
  return Expect(present, absl::StrCat("outputs 0 to ", required - 1, " and at most ", limit));
}

SpecCheck& SpecCheck::Real(const TensorSlice& operand, const char* name) {
  return Expect(IsReal(operand.dtype), absl::StrCat("real elements in ", name));
}

SpecCheck& SpecCheck::Is(const TensorSlice& operand, DType dtype, const char* name) {
  return Expect(operand.dtype == dtype, absl::StrCat(Name(dtype), " elements in ", name));
}

SpecCheck& SpecCheck::SameType(const TensorSlice& a, const TensorSlice& b, const char* names) {
  return Expect(a.dtype == b.dtype, absl::StrCat("one element type in ", names));
}

SpecCheck& SpecCheck::SameShape(const TensorSlice& a, const TensorSlice& b, const char* names) {
  return Expect(a.shape == b.shape, absl::StrCat("one shape of ", names));
}

SpecCheck& SpecCheck::MinRank(const TensorSlice& operand, int rank, const char* name) {
  return Expect(static_cast<int>(operand.shape.size()) >= rank,
                absl::StrCat("at least ", rank, " axes in ", name));
}

SpecCheck& SpecCheck::Expect(bool holds, const std::string& what) {
  if (status_.ok() && !holds) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("the cpu kernel of op ", spec_.op, " expects ", what, "; found (",
                     OperandsText(spec_.inputs), ") -> (", OperandsText(spec_.outputs), ") ",
                     ToText(spec_.attrs)));
  }
  return *this;
}

int64_t LeadingElements(const TensorSlice& operand, int drop) {
  int64_t product = 1;
  for (int i = 0; i + drop < static_cast<int>(operand.shape.size()); ++i)
    product *= operand.shape[i];
  return product;
}

int64_t SizeFromEnd(const TensorSlice& operand, int from_end) {
  int axis = static_cast<int>(operand.shape.size()) - from_end;
  return axis >= 0 ? operand.shape[axis] : 1;
}

Shape LeadingShape(const TensorSlice& operand, int drop) {
  Shape shape = operand.shape;
  shape.resize(static_cast<int>(shape.size()) > drop ? shape.size() - drop : 0);
  return shape;
}

}  // namespace weir::kernels
