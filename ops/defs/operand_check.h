// An OperandCheck states an op's expectations of the types of its operands as a chain. The first
// expectation that fails becomes the status, and later expectations are skipped.
//
//   OperandCheck check(in, {"x", "w"});
//   check.Real(0).MinRank(0, 1).Rank(1, 2).SameType(1, 0).SameSize(1, 0, 0, -1);
//   WEIR_RETURN_IF_ERROR(check.status());
//
// Expectations about absent operands hold. Axes may count from the end (-1). Names of dimensions
// may differ unless stated otherwise. Thread rule: one thread.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"

namespace weir::ops {

class OperandCheck {
 public:
  // `names` holds the names of the inputs, in order; further operands take the last name.
  OperandCheck(const InferInput& in, std::vector<std::string> names)
      : in_(in), names_(std::move(names)) {}

  bool Has(int i) const { return i < static_cast<int>(in_.inputs.size()); }
  const sbp::TensorType& type(int i) const { return in_.inputs[i]; }
  const std::vector<sbp::TensorDim>& dims(int i) const { return in_.inputs[i].dims; }
  const sbp::TensorDim& dim(int i, int axis) const;

  // The next functions check element types: W0309.
  OperandCheck& Real(int i);
  OperandCheck& Is(int i, DType dtype);
  OperandCheck& SameType(int i, int like);
  // The next functions check ranks: W0307.
  OperandCheck& Rank(int i, int rank);
  OperandCheck& MinRank(int i, int rank);
  // The next functions check sizes: W0308. SameSize: dimension `axis` of i is as long as dimension
  // `like_axis` of `like`.
  OperandCheck& SameSize(int i, int axis, int like, int like_axis);
  // All sizes of i are those of `like`.
  OperandCheck& SameShape(int i, int like);
  // All sizes of i are those of `like` without its last `drop` dimensions.
  OperandCheck& LeadingShape(int i, int like, int drop);
  // The last dimensions of i and j have equal names and sizes, apart from sizes of 1 on either
  // side.
  OperandCheck& Broadcast(int i, int j);
  // Checks that attribute `name` is an axis of operand i, from 0: W0310.
  OperandCheck& Axis(const std::string& name, int64_t axis, int i);

  // Records a failure that the op found itself.
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

// Checks that the attribute is one of `choices`: W0310 with the nearest choice.
absl::Status CheckChoice(const std::string& attr, const std::string& value,
                         const std::vector<std::string>& choices);
// Checks that the real attribute `name` is 0 or more: W0310.
absl::Status CheckNotNegative(const Attributes& attrs, const std::string& name);
// Returns the real element type with name `value`; "" means `fallback`.
absl::StatusOr<DType> RealDType(const std::string& attr, const std::string& value, DType fallback);

}  // namespace weir::ops
