// Where the elements of a weight lie in the tensors of its sources: views, transpositions, cuts and
// concatenation become strides. A part of a weight is then a few runs of elements per tensor, which
// a rank reads, or a writer of public files writes, and nothing else.
// Thread rule: immutable values and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/slice_runs.h"
#include "tools/weights/weight_map.h"

namespace weir::weights {

class WeightLayout {
 public:
  // Lays out a weight of shape `weight`. `tensors` has the shape of the tensor of each source.
  // kInvalidArgument: the reason, as text without a code.
  static absl::StatusOr<WeightLayout> Make(const SourcesOfWeight& sources,
                                           const std::vector<Shape>& tensors, const Shape& weight);

  // Calls run(source, first, stride, count, local) for runs of elements that cover `slice` of the
  // weight: `count` elements from `local` on in the slice lie in the tensor of the source at
  // positions first, first + stride, … in row-major order.
  template <typename F>
  void ForEachElementRun(const TensorSlice& slice, F&& run) const {
    store::ForEachRun(slice, [&](int64_t local, int64_t position, int64_t count) {
      while (count > 0) {
        const Place place = PlaceOf(position);
        const int64_t taken = std::min(count, place.count);
        run(place.source, place.first, place.stride, taken, local);
        local += taken;
        position += taken;
        count -= taken;
      }
    });
  }

 private:
  struct Source {
    int64_t begin = 0;   // along the axis of concatenation, in elements of a row of all sources
    int64_t length = 0;  // likewise
    int64_t base = 0;    // of its first element in the tensor
    Shape sizes;         // with their strides; axes that lie as one are joined
    std::vector<int64_t> strides;
  };
  struct Place {
    size_t source = 0;
    int64_t first = 0, stride = 1, count = 0;
  };
  // Returns where the element at `position` of the weight lies, and the run that it begins.
  Place PlaceOf(int64_t position) const;

  int64_t row_ =
      1;  // elements of all sources for one index of the axes before that of concatenation
  std::vector<Source> sources_;
};

// Returns the shape of the tensor of a source: the one that the map gives, or the one that follows
// from the shape of the weight. kFailedPrecondition: neither; several sources, a view or a range
// may hide it.
absl::StatusOr<Shape> TensorShapeFrom(const SourcesOfWeight& sources, size_t source,
                                      const Shape& weight);

}  // namespace weir::weights
