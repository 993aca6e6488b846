// exchange_pack and exchange_fill on a GPU: copies rectangles of tensors and ranges of messages,
// and combines several of them, in an order that does not depend on the device.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/combiner.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// An ExchangeWalk says where numbered elements lie in a tensor or message. With no axes, element e
// is at offset first + e. Otherwise the elements are runs of `run` contiguous ones
// (exchange_plan.h).
struct ExchangeWalk {
  static constexpr int kAxesMax = 8;

  void* base = nullptr;  // of a source only read
  int64_t first = 0;
  int64_t run = 1;
  int32_t num_axes = 0;
  int32_t is_small = 0;          // 1: no number of an element has more than 32 bits
  int64_t sizes[kAxesMax] = {};  // the slowest axis first
  int64_t strides[kAxesMax] = {};
};

// The sources of a segment lie in the parameter of the launch, or in the workspace.
enum class ExchangeSourcesIn : uint8_t { kParameter, kMemory };

// Returns the elements that a thread moves at once if they are aligned and contiguous: those of 16
// bytes, but few enough that the tree of many sources fits into registers.
constexpr int ExchangePack(int64_t element_bytes, ExchangeSourcesIn sources) {
  const int pack = static_cast<int>(16 / element_bytes);
  return sources == ExchangeSourcesIn::kMemory && pack > 4 ? 4 : pack;
}

// Elements [first, last) of the target. One source: a copy. None: the combiner's neutral element.
// Several: they are combined as ExchangeRegion describes (runtime/base/transfer/transfer.h).
struct ExchangeSegment {
  ExchangeWalk target;
  int64_t first = 0, last = 0;
  int64_t first_source = 0, num_sources = 0;
  uint32_t first_block = 0;  // of the launch
  Combiner combiner = Combiner::kSum;
  bool packs = false;  // packs are aligned and contiguous, in the target and in each source
};

// The segments of one launch. The struct is a kernel's parameter, of which CUDA passes 4 KiB.
struct ExchangeWork {
  static constexpr int kSegmentsMax = 8;
  static constexpr int kSourcesMax = 14;

  DType dtype = DType::kF32;
  int num_segments = 0, num_sources = 0;
  uint32_t num_blocks = 0;
  // If this is null, the sources are those below. Otherwise the sources are there, in the device's
  // memory.
  const ExchangeWalk* memory = nullptr;
  ExchangeSegment segments[kSegmentsMax];
  ExchangeWalk sources[kSourcesMax];
};
static_assert(sizeof(ExchangeWork) <= 4096);

// Sources on their way to the device's memory.
struct ExchangeSources {
  static constexpr int kSourcesMax = 24;

  int count = 0;
  ExchangeWalk* to = nullptr;
  ExchangeWalk sources[kSourcesMax];
};
static_assert(sizeof(ExchangeSources) <= 4096);

// Returns the blocks of a segment of `count` elements that are moved `at_once` by a thread.
uint32_t ExchangeBlocks(int64_t count, int64_t at_once);

// Precondition: segments of bools have at most one source.
void LaunchExchange(const ExchangeWork& work, device::CudaStream stream);
void LaunchExchangeSources(const ExchangeSources& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
