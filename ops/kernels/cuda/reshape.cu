#include "ops/kernels/cuda/reshape.h"

#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kTile = 64;
constexpr int kTileRows = kElementThreads / kTile;  // rows of a tile that a block reads at once

__global__ void CopyKernel(const uint8_t* x, uint8_t* y, int64_t bytes) {
  constexpr int kPack = kPackSize<uint8_t>;
  const int64_t first = GridThread() * kPack;
  StorePack<kPack>(y, first, bytes, LoadPack<kPack>(x, first, bytes));
}

// A thread writes one unit.
template <int kUnit, typename Index>
__global__ void RowsKernel(RowsWork work, uint8_t* y) {
  const Index row_units = static_cast<Index>((work.end - work.begin) / kUnit);
  const int64_t at = GridThread();
  if (at >= work.num_rows * static_cast<int64_t>(row_units)) return;
  const int64_t row = static_cast<Index>(at) / row_units;
  const int64_t column =
      work.begin + static_cast<int64_t>(static_cast<Index>(at) % row_units) * kUnit;
  int part = 0;
  while (part + 1 < work.num_parts && column >= work.parts[part + 1].to) ++part;
  const uint8_t* from = static_cast<const uint8_t*>(work.parts[part].from);
  Pack<uint8_t, kUnit> pack = {};
  if (from != nullptr) {
    const int64_t offset = row * work.parts[part].row_bytes + column - work.parts[part].to;
    pack = LoadPack<kUnit>(from + offset, 0, kUnit);
  }
  StorePack<kUnit>(y + row * work.row_bytes + column, 0, kUnit, pack);
}

// Calls f with the unit as a type.
template <int kUnit>
struct UnitOf {
  static constexpr int kBytes = kUnit;
};
template <typename F>
void WithUnit(int unit, F f) {
  switch (unit) {
    case 16: return f(UnitOf<16>());
    case 8: return f(UnitOf<8>());
    case 4: return f(UnitOf<4>());
    case 2: return f(UnitOf<2>());
    default: return f(UnitOf<1>());
  }
}

// Runs along the last axis of y are runs in x. A thread copies one unit.
template <typename Unit, typename Index>
__global__ void PermuteKernel(TransposeWork work, int64_t units, const Unit* x, Unit* y) {
  const int64_t at = GridThread();
  if (at >= units) return;
  Index rest = static_cast<Index>(at);
  int64_t from = 0;
  for (int axis = work.num_axes - 1; axis >= 0; --axis) {
    const Index size = static_cast<Index>(work.sizes[axis]);
    from += static_cast<int64_t>(axis > 0 ? rest % size : rest) * work.strides[axis];
    rest = axis > 0 ? rest / size : 0;
  }
  y[at] = x[from];
}

// A block transposes one tile: its rows run along the axis that is contiguous in x, its columns
// along the last axis of y.
template <typename Unit>
__global__ void TransposeKernel(TransposeWork work, const Unit* x, Unit* y) {
  WEIR_SHARED(Unit, tile);
  constexpr int kStride =
      kTile + 4 / static_cast<int>(sizeof(Unit));  // spreads a column over banks
  const int last = work.num_axes - 1;
  const int64_t size = work.sizes[last], fast_size = work.sizes[work.fast];
  const int64_t tiles = (size + kTile - 1) / kTile, fast_tiles = (fast_size + kTile - 1) / kTile;
  int64_t rest = blockIdx.x;
  const int64_t column0 = rest % tiles * kTile;
  rest /= tiles;
  const int64_t row0 = rest % fast_tiles * kTile;
  rest /= fast_tiles;
  int64_t from = row0 + column0 * work.strides[last];
  int64_t to = row0 * work.out_strides[work.fast] + column0;
  for (int axis = last - 1; axis >= 0; --axis) {
    if (axis == work.fast) continue;
    from += rest % work.sizes[axis] * work.strides[axis];
    to += rest % work.sizes[axis] * work.out_strides[axis];
    rest /= work.sizes[axis];
  }
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int start = static_cast<int>(threadIdx.x) / kTile;
  for (int column = start; column < kTile; column += kTileRows) {
    if (row0 + lane < fast_size && column0 + column < size)
      tile[lane * kStride + column] = x[from + lane + column * work.strides[last]];
  }
  __syncthreads();
  for (int row = start; row < kTile; row += kTileRows) {
    if (row0 + row < fast_size && column0 + lane < size)
      y[to + row * work.out_strides[work.fast] + lane] = tile[row * kStride + lane];
  }
}

template <int kUnit>
void LaunchPermute(const TransposeWork& work, int64_t units, device::CudaStream stream) {
  using Unit = Pack<uint8_t, kUnit>;
  const bool is_small = units <= 0x7fffffffll;
  Launch(stream, is_small ? &PermuteKernel<Unit, uint32_t> : &PermuteKernel<Unit, uint64_t>,
         dim3(ElementBlocks(units, 1)), dim3(kElementThreads), 0, work, units,
         static_cast<const Unit*>(work.x), static_cast<Unit*>(work.y));
}

template <typename Unit>
void LaunchTiles(const TransposeWork& work, int64_t units, device::CudaStream stream) {
  constexpr int kStride = kTile + 4 / static_cast<int>(sizeof(Unit));
  const int64_t size = work.sizes[work.num_axes - 1], fast_size = work.sizes[work.fast];
  const int64_t blocks =
      units / (size * fast_size) * ((size + kTile - 1) / kTile) * ((fast_size + kTile - 1) / kTile);
  Launch(stream, &TransposeKernel<Unit>, dim3(static_cast<unsigned>(blocks)), dim3(kElementThreads),
         kTile * kStride * sizeof(Unit), work, static_cast<const Unit*>(work.x),
         static_cast<Unit*>(work.y));
}

}  // namespace

void LaunchCopy(const CopyWork& work, device::CudaStream stream) {
  const unsigned blocks = ElementBlocks(work.bytes, kPackSize<uint8_t>);
  if (blocks == 0) return;
  Launch(stream, &CopyKernel, dim3(blocks), dim3(kElementThreads), 0,
         static_cast<const uint8_t*>(work.x), static_cast<uint8_t*>(work.y), work.bytes);
}

void LaunchRows(const RowsWork& work, device::CudaStream stream) {
  WithUnit(work.unit, [&](auto unit) {
    constexpr int kUnit = decltype(unit)::kBytes;
    const int64_t units = work.num_rows * ((work.end - work.begin) / kUnit);
    if (units == 0) return;
    const bool is_small = units <= 0x7fffffffll;
    Launch(stream, is_small ? &RowsKernel<kUnit, uint32_t> : &RowsKernel<kUnit, uint64_t>,
           dim3(ElementBlocks(units, 1)), dim3(kElementThreads), 0, work,
           static_cast<uint8_t*>(work.y));
  });
}

void LaunchTranspose(const TransposeWork& work, device::CudaStream stream) {
  int64_t units = 1;
  for (int axis = 0; axis < work.num_axes; ++axis) units *= work.sizes[axis];
  if (units == 0) return;
  if (work.fast == work.num_axes - 1) {
    WithUnit(work.unit,
             [&](auto unit) { LaunchPermute<decltype(unit)::kBytes>(work, units, stream); });
    return;
  }
  switch (work.unit) {
    case 4: return LaunchTiles<uint32_t>(work, units, stream);
    case 2: return LaunchTiles<uint16_t>(work, units, stream);
    default: return LaunchTiles<uint8_t>(work, units, stream);
  }
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
