// GlobalNumbers numbers the elements of a shard by their place in the whole tensor, row-major from
// 0. The elements of a shard lie in stretches that are contiguous in the shard and in the whole
// tensor. Thread rule: immutable value.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/tensor_slice.h"

namespace weir::kernels {

class GlobalNumbers {
 public:
  struct Axis {
    int64_t size, stride;  // the stride in the whole tensor
  };

  explicit GlobalNumbers(const TensorSlice& x);

  // Elements of a stretch; at least 1 unless the shard is empty.
  int64_t stretch() const { return stretch_; }
  // The number of the shard's first element.
  int64_t first() const { return first_; }
  // The axes that stretches count along, the fastest first.
  const std::vector<Axis>& outer() const { return outer_; }

  // Returns the number of the first element of a stretch; stretches count from 0.
  int64_t StretchStart(int64_t stretch) const {
    int64_t number = first_;
    for (const Axis& axis : outer_) {
      number += stretch % axis.size * axis.stride;
      stretch /= axis.size;
    }
    return number;
  }

 private:
  int64_t stretch_ = 1, first_ = 0;
  std::vector<Axis> outer_;
};

}  // namespace weir::kernels
