// A Layout says, for each axis of the mesh of a place, how the axis divides or copies a tensor:
//
//   S(i)       split along tensor axis i; S(i, at=0:2:3) with explicit offsets
//   B          equal copies
//   P(sum)     to be merged with the named combiner (sum, max)
//
// The text form is "[dp: S(0), tp: B]", with axes in mesh order; an axis left out is B. Splits of
// one tensor axis by several mesh axes nest, in mesh order. Without explicit offsets a split is
// balanced in units: of u = size/unit units over n parts, the first u mod n parts hold one more. A
// nested balanced split divides its parent's range in units again, counted from the range's begin.
// Explicit offsets always cut the whole tensor axis; nested explicit parts keep the elements that
// fall into the parent's range. Shards may be uneven and empty.
//
//   size 7, mesh dp=2,tp=2, [dp: S(0), tp: S(0)]:  0..4 -> 0..2 2..4 | 4..7 -> 4..6 6..7
//
// The partial axes of one layout have one combiner. Sums of maxima and maxima of sums differ, so
// the result of a mixture would depend on the order of merging.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/combiner.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rect.h"
#include "runtime/base/tensor_slice.h"
#include "sbp/mesh.h"

namespace weir::sbp {

enum class SbpKind : uint8_t { kBroadcast, kSplit, kPartial };

struct Sbp {
  SbpKind kind = SbpKind::kBroadcast;
  int axis = -1;  // kSplit
  // kSplit with explicit offsets: parts + 1 entries from 0 to size; empty: balanced.
  std::vector<int64_t> offsets;
  Combiner combiner = Combiner::kSum;  // kPartial

  static Sbp B() { return {}; }
  static Sbp S(int axis) { return {SbpKind::kSplit, axis, {}, Combiner::kSum}; }
  static Sbp P(Combiner combiner = Combiner::kSum) { return {SbpKind::kPartial, -1, {}, combiner}; }
  bool is_broadcast() const { return kind == SbpKind::kBroadcast; }
  bool is_split() const { return kind == SbpKind::kSplit; }
  bool is_partial() const { return kind == SbpKind::kPartial; }
  friend bool operator==(const Sbp&, const Sbp&) = default;
};
std::string ToText(const Sbp& sbp);

// A TensorDim is a named dimension of a logical tensor. `unit` divides `size`.
struct TensorDim {
  std::string name;
  int64_t size = 0;
  int64_t unit = 1;
  friend bool operator==(const TensorDim&, const TensorDim&) = default;
};

struct TensorType {
  DType dtype = DType::kF32;
  std::vector<TensorDim> dims;
  Shape shape() const;
  int64_t num_elements() const { return NumElements(shape()); }
  int64_t bytes() const { return num_elements() * SizeOf(dtype); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
// "f32[batch=8, sequence=64]"
std::string ToText(const TensorType& type);

// A Layout has one Sbp per axis of the mesh of a place.
using Layout = std::vector<Sbp>;
Layout Broadcast(const Mesh& mesh);
std::string ToText(const Layout& layout, const Mesh& mesh);
// Inverse of ToText. kInvalidArgument names the flaw and the valid axes and kinds. ValidateLayout
// checks whether the layout suits a tensor.
absl::StatusOr<Layout> ParseLayout(const std::string& text, const Mesh& mesh);
// Checks that split axes exist, that offsets fit and lie on units, that partials are of real
// tensors and have one combiner, that the type's units divide its sizes, and that its bytes do not
// overflow.
absl::Status ValidateLayout(const Layout& layout, const TensorType& type, const Mesh& mesh);

// A Range is [begin, end) of one tensor axis.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end > begin ? end - begin : 0; }
  friend bool operator==(const Range&, const Range&) = default;
};
// Returns part `index` of `parts` of `parent` under the split `sbp` of an axis with `unit`.
Range PartOf(const Range& parent, const Sbp& sbp, int64_t unit, int64_t parts, int64_t index);

// Returns the part of the tensor that the device at `coords` holds. Partial and broadcast axes do
// not narrow this part.
Rect ShardRect(const TensorType& type, const Layout& layout, const Mesh& mesh,
               const Coords& coords);
TensorSlice LocalSlice(const TensorType& type, const Layout& layout, const Mesh& mesh,
                       const Coords& coords);

}  // namespace weir::sbp
