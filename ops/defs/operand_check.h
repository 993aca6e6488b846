// OperandCheck: what an op expects of the types of its operands, written as a
// chain; the first expectation that fails is the status, later ones are skipped.
//
//   OperandCheck check(in, {"x", "w"});
//   check.Real(0).MinRank(0, 1).Rank(1, 2).SameType(1, 0).SameSize(1, 0, 0, -1);
//   WEIR_RETURN_IF_ERROR(check.status());
//
// Expectations about absent operands hold. Axes may count from the end (-1).
// Names of dimensions may differ unless said. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"

namespace weir {

class OperandCheck {
 public:
  // `names` of the inputs, in order; operands beyond are called like the last.
  OperandCheck(const InferInput& in, std::vector<std::string> names)
      : in_(in), names_(std::move(names)) {}

  bool Has(int i) const { return i < static_cast<int>(in_.inputs.size()); }
  const TensorType& type(int i) const { return in_.inputs[i]; }
  const std::vector<TensorDim>& dims(int i) const { return in_.inputs[i].dims; }
  const TensorDim& dim(int i, int axis) const;

  // Element types: W0309.
  OperandCheck& Real(int i);
  OperandCheck& Is(int i, DType dtype);
  OperandCheck& SameType(int i, int like);
  // Ranks: W0307.
  OperandCheck& Rank(int i, int rank);
  OperandCheck& MinRank(int i, int rank);
  // Sizes: W0308. Dimension `axis` of i is as long as dimension `like_axis` of `like`.
  OperandCheck& SameSize(int i, int axis, int like, int like_axis);
  // All sizes of i are those of `like`.
  OperandCheck& SameShape(int i, int like);
  // All sizes of i are those of `like` without its last `drop` dimensions.
  OperandCheck& LeadingShape(int i, int like, int drop);
  // Sizes and names of i are those of the last dimensions of `like`.
  OperandCheck& Suffix(int i, int like);
  // Attribute `name` is an axis of operand i, from 0: W0310.
  OperandCheck& Axis(const std::string& name, int64_t axis, int i);

  // Records a failure of the op's own.
  OperandCheck& Fail(const Problem& problem);
  const absl::Status& status() const { return status_; }

 private:
  bool Skip(int i) const { return !status_.ok() || !Has(i); }
  std::string Operand(int i) const;  // "x f32[batch=8, hidden=64]"
  const std::string& name(int i) const { return names_[std::min<size_t>(i, names_.size() - 1)]; }

  const InferInput& in_;
  std::vector<std::string> names_;
  absl::Status status_;
};

// The attribute as one of `choices`: W0310 with the nearest.
absl::Status CheckChoice(const std::string& attr, const std::string& value,
                         const std::vector<std::string>& choices);
// The real attribute `name` is 0 or more: W0310.
absl::Status CheckNotNegative(const Attributes& attrs, const std::string& name);
// A real element type by name; "" means `fallback`.
absl::StatusOr<DType> RealDType(const std::string& attr, const std::string& value, DType fallback);

}  // namespace weir
