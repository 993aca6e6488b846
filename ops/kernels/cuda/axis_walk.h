// An AxisWalk is an AxisGroups for kernels on a GPU: plain numbers that a launch copies. Thread
// rule: value.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

struct AxisWalk {
  // The groups of a tensor alternate between kept and reduced: at most one for each axis.
  static constexpr int kOuterMax = 16;
  struct Group {
    int64_t size, stride;
    bool reduced;
  };

  bool inner_reduced = false;
  int64_t row = 1, num_kept = 1, num_reduced = 1;  // as in AxisGroups
  int num_outer = 0;
  Group outer[kOuterMax];  // the fastest first

  int64_t num_rows() const { return num_kept * num_reduced; }
  // Elements of the tensor without the reduced axes.
  int64_t num_results() const { return num_kept * (inner_reduced ? 1 : row); }
};

}  // namespace weir::kernels::WEIR_CUDA_SPACE
