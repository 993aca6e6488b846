#include "tools/checkpoint/diff_checkpoints.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/stored_dtype.h"
#include "tools/checkpoint/tensor_pieces.h"

namespace weir::checkpoint {
namespace {

std::string TypeText(const store::TensorFacts& tensor) {
  return absl::StrCat(tensor.dtype, ToText(tensor.shape));
}

void CompareReals(const std::string& a, const std::string& b, TensorDiff* diff) {
  for (size_t at = 0; at + sizeof(float) <= a.size(); at += sizeof(float)) {
    if (memcmp(a.data() + at, b.data() + at, sizeof(float)) == 0) continue;
    float left, right;
    memcpy(&left, a.data() + at, sizeof(float));
    memcpy(&right, b.data() + at, sizeof(float));
    ++diff->differing;
    const double difference = std::fabs(static_cast<double>(left) - static_cast<double>(right));
    if (!(difference <= diff->max_difference)) diff->max_difference = difference;
  }
}

void CompareBytes(const std::string& a, const std::string& b, size_t width, TensorDiff* diff) {
  for (size_t at = 0; at + width <= a.size(); at += width)
    diff->differing += memcmp(a.data() + at, b.data() + at, width) == 0 ? 0 : 1;
}

// Returns nullopt if the values are equal.
absl::StatusOr<std::optional<TensorDiff>> DiffOf(const std::string& name, const OpenTensors& a,
                                                 const OpenTensors& b) {
  const store::TensorFacts &left = a.tensors.at(name), &right = b.tensors.at(name);
  TensorDiff diff{name, TensorDiff::Kind::kOtherType, TypeText(left), TypeText(right)};
  const std::optional<DType> held = store::DTypeFromStoredName(left.dtype),
                             other = store::DTypeFromStoredName(right.dtype);
  if (left.shape != right.shape || !held.has_value() || !other.has_value() ||
      IsReal(*held) != IsReal(*other) || (!IsReal(*held) && *held != *other))
    return diff;
  const DType dtype = IsReal(*held) ? DType::kF32 : *held;
  diff.elements = NumElements(left.shape);
  std::string one, two;
  const absl::Status read = ForEachPiece(
      TensorSlice::Whole(dtype, left.shape), [&](const TensorSlice& piece) -> absl::Status {
        one.resize(static_cast<size_t>(piece.bytes()));
        two.resize(one.size());
        WEIR_RETURN_IF_ERROR(a.reader->Read(name, piece, one.data()));
        WEIR_RETURN_IF_ERROR(b.reader->Read(name, piece, two.data()));
        if (memcmp(one.data(), two.data(), one.size()) == 0) return absl::OkStatus();
        if (IsReal(dtype)) {
          CompareReals(one, two, &diff);
        } else {
          CompareBytes(one, two, static_cast<size_t>(SizeOf(dtype)), &diff);
        }
        return absl::OkStatus();
      });
  WEIR_RETURN_IF_ERROR(read);
  if (diff.differing > 0) diff.kind = TensorDiff::Kind::kOtherValues;
  if (diff.differing > 0 || left.dtype != right.dtype) return diff;
  return std::nullopt;
}

bool IsState(const store::TensorFacts& tensor) {
  return tensor.owner != store::StateOwner::kWeight;
}

bool HasWeightsAlone(const OpenTensors& opened) {
  return !store::IsOfCheckpoint(opened.reader->metadata()) &&
         std::none_of(opened.tensors.begin(), opened.tensors.end(),
                      [](const auto& entry) { return IsState(entry.second); });
}

}  // namespace

absl::StatusOr<CheckpointDiff> Diff(const OpenTensors& a, const OpenTensors& b) {
  CheckpointDiff all;
  std::set<std::string> names;
  for (const auto& [name, tensor] : a.tensors) names.insert(name);
  for (const auto& [name, tensor] : b.tensors) names.insert(name);
  const bool a_is_weights = HasWeightsAlone(a), b_is_weights = HasWeightsAlone(b);
  if (a_is_weights) all.with_weights_alone = CheckpointDiff::Side::kA;
  for (const std::string& name : names) {
    const auto left = a.tensors.find(name), right = b.tensors.find(name);
    if ((right == b.tensors.end() && b_is_weights && IsState(left->second)) ||
        (left == a.tensors.end() && a_is_weights && IsState(right->second))) {
      ++all.left_out;
    } else if (right == b.tensors.end()) {
      all.tensors.push_back({name, TensorDiff::Kind::kOnlyInA, TypeText(left->second), ""});
    } else if (left == a.tensors.end()) {
      all.tensors.push_back({name, TensorDiff::Kind::kOnlyInB, "", TypeText(right->second)});
    } else {
      WEIR_ASSIGN_OR_RETURN(std::optional<TensorDiff> diff, DiffOf(name, a, b));
      if (diff.has_value()) {
        all.tensors.push_back(*std::move(diff));
      } else {
        ++all.equal;
      }
    }
  }
  return all;
}

}  // namespace weir::checkpoint
