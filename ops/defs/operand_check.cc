#include "ops/defs/operand_check.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::ops {
namespace {

std::string DimText(const sbp::TensorDim& dim) { return absl::StrCat(dim.name, "=", dim.size); }

bool SameSizes(const std::vector<sbp::TensorDim>& a, const std::vector<sbp::TensorDim>& b,
               size_t count) {
  if (a.size() != count || b.size() < count) return false;
  for (size_t d = 0; d < count; ++d) {
    if (a[d].size != b[d].size) return false;
  }
  return true;
}

}  // namespace

const sbp::TensorDim& OperandCheck::dim(int i, int axis) const {
  const auto& all = dims(i);
  return all[axis < 0 ? all.size() + axis : axis];
}

std::string OperandCheck::Operand(int i) const {
  return absl::StrCat(name(i), " ", ToText(type(i)));
}

OperandCheck& OperandCheck::Fail(const Problem& problem) {
  if (status_.ok()) status_ = Rejected(problem);
  return *this;
}

OperandCheck& OperandCheck::Real(int i) {
  if (Skip(i) || IsReal(type(i).dtype)) return *this;
  return Fail({"W0309", "", absl::StrCat("real elements (f32, bf16 or f16) in ", name(i)),
               Operand(i), "cast to f32 before this op"});
}

OperandCheck& OperandCheck::Is(int i, DType dtype) {
  if (Skip(i) || type(i).dtype == dtype) return *this;
  return Fail({"W0309", "", absl::StrCat(Name(dtype), " elements in ", name(i)), Operand(i),
               absl::StrCat("an operand of type ", Name(dtype))});
}

OperandCheck& OperandCheck::SameType(int i, int like) {
  if (Skip(i) || Skip(like) || type(i).dtype == type(like).dtype) return *this;
  return Fail({"W0309", "", absl::StrCat("elements of ", name(i), " like those of ", Operand(like)),
               Operand(i), absl::StrCat("cast ", name(i), " to ", Name(type(like).dtype))});
}

OperandCheck& OperandCheck::Rank(int i, int rank) {
  if (Skip(i) || static_cast<int>(dims(i).size()) == rank) return *this;
  return Fail({"W0307", "", absl::StrCat(rank, " dimension", rank == 1 ? "" : "s", " in ", name(i)),
               Operand(i), ""});
}

OperandCheck& OperandCheck::MinRank(int i, int rank) {
  if (Skip(i) || static_cast<int>(dims(i).size()) >= rank) return *this;
  return Fail({"W0307", "",
               absl::StrCat("at least ", rank, " dimension", rank == 1 ? "" : "s", " in ", name(i)),
               Operand(i), ""});
}

OperandCheck& OperandCheck::SameSize(int i, int axis, int like, int like_axis) {
  if (Skip(i) || Skip(like)) return *this;
  const sbp::TensorDim& found = dim(i, axis);
  const sbp::TensorDim& expected = dim(like, like_axis);
  if (found.size == expected.size) return *this;
  // If the operand is transposed, another dimension has the expected size.
  for (const sbp::TensorDim& other : dims(i)) {
    if (other.size != expected.size) continue;
    return Fail({"W0308", "",
                 absl::StrCat("dimension ", found.name, " of ", name(i), " as long as ",
                              DimText(expected), " of ", Operand(like)),
                 absl::StrCat(DimText(found), " in ", Operand(i)),
                 absl::StrCat("swap ", found.name, " and ", other.name, " of ", name(i))});
  }
  return Fail({"W0308", "",
               absl::StrCat("dimension ", found.name, " of ", name(i), " as long as ",
                            DimText(expected), " of ", Operand(like)),
               absl::StrCat(DimText(found), " in ", Operand(i)),
               absl::StrCat(found.name, "=", expected.size)});
}

OperandCheck& OperandCheck::SameShape(int i, int like) { return LeadingShape(i, like, 0); }

OperandCheck& OperandCheck::LeadingShape(int i, int like, int drop) {
  if (Skip(i) || Skip(like)) return *this;
  size_t count = dims(like).size() - drop;
  if (SameSizes(dims(i), dims(like), count)) return *this;
  sbp::TensorType expected{type(i).dtype, {dims(like).begin(), dims(like).begin() + count}};
  return Fail({"W0308", "",
               absl::StrCat(name(i), " shaped like ",
                            drop == 0 ? "" : absl::StrCat("the first ", count, " dimensions of "),
                            Operand(like)),
               Operand(i), ToText(expected)});
}

OperandCheck& OperandCheck::Broadcast(int i, int j) {
  if (Skip(i) || Skip(j)) return *this;
  const auto &a = dims(i), &b = dims(j);
  const size_t common = std::min(a.size(), b.size());
  bool fits = true;
  for (size_t d = 1; fits && d <= common; ++d) {
    const sbp::TensorDim &of_a = a[a.size() - d], &of_b = b[b.size() - d];
    fits = of_a.size == 1 || of_b.size == 1 || (of_a.size == of_b.size && of_a.name == of_b.name);
  }
  if (fits) return *this;
  return Fail({"W0308", "",
               absl::StrCat(name(j), " with the last dimensions of ", Operand(i),
                            " (names and sizes), or with sizes of 1 there"),
               Operand(j), ToText(sbp::TensorType{type(j).dtype, {a.end() - common, a.end()}})});
}

OperandCheck& OperandCheck::Axis(const std::string& attr, int64_t axis, int i) {
  if (Skip(i)) return *this;
  int64_t rank = static_cast<int64_t>(dims(i).size());
  if (axis >= 0 && axis < rank) return *this;
  std::string expected =
      rank == 0 ? absl::StrCat("an operand with an axis, ", name(i))
                : absl::StrCat(attr, " from 0 to ", rank - 1, ", an axis of ", Operand(i));
  std::string hint = axis < 0 && axis + rank >= 0 ? absl::StrCat(attr, ": ", axis + rank) : "";
  return Fail({"W0310", "", expected, rank == 0 ? Operand(i) : absl::StrCat(axis), hint});
}

absl::Status CheckChoice(const std::string& attr, const std::string& value,
                         const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    if (choice == value) return absl::OkStatus();
  }
  std::string nearest = Nearest(absl::AsciiStrToLower(value), choices);  // "ReLU" is relu
  return Rejected({"W0310", "", absl::StrCat(attr, " to be one of ", absl::StrJoin(choices, ", ")),
                   absl::StrCat("\"", value, "\""),
                   nearest.empty() ? "" : absl::StrCat(attr, ": \"", nearest, "\"")});
}

absl::Status CheckNotNegative(const Attributes& attrs, const std::string& name) {
  double value = attrs.Real(name);
  if (value >= 0) return absl::OkStatus();
  return Rejected({"W0310", "", absl::StrCat(name, " of 0 or more"), absl::StrCat(value),
                   absl::StrCat(name, ": ", -value)});
}

absl::StatusOr<DType> RealDType(const std::string& attr, const std::string& value, DType fallback) {
  if (value.empty()) return fallback;
  WEIR_RETURN_IF_ERROR(CheckChoice(attr, value, {"f32", "bf16", "f16"}));
  return *DTypeFromName(value);
}

}  // namespace weir::ops
