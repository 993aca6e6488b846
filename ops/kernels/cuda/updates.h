// The ops of ops/defs/optimizer.cc on a GPU. ops/kernels/shape/update_maps.h has the arithmetic.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/shape/update_maps.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Calls the map for elements [0, n). LaunchUpdate is there for each map of update_maps.h.
template <typename Map>
void LaunchUpdate(const Map& map, int64_t n, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
