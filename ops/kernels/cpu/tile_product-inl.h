// Products and transposes of small f32 blocks that lie in the cache.
// Compiled once per instruction set (Highway's foreach_target).
//
// The left operand is read one number at a time with any strides; the right operand and the result
// are read in whole vectors of columns. Sums run over `steps` in order, so an element's result
// depends on its row and its column only.

#if defined(WEIR_OPS_KERNELS_CPU_TILE_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_OPS_KERNELS_CPU_TILE_PRODUCT_INL_H_
#undef WEIR_OPS_KERNELS_CPU_TILE_PRODUCT_INL_H_
#else
#define WEIR_OPS_KERNELS_CPU_TILE_PRODUCT_INL_H_
#endif

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {

// A Result says whether the product overwrites the result's old contents or adds to them.
enum class Result : uint8_t { kOverwrite, kAdd };

// Element (row, step) is data[row * row_stride + step * step_stride].
struct LeftBlock {
  const float* data;
  int64_t row_stride;
  int64_t step_stride;
};

// Row-major; rows need not be aligned.
struct RightBlock {
  const float* data;
  int64_t row_stride;
};

struct ResultBlock {
  float* data;
  int64_t row_stride;
};

// A tile has as many sums as stay in registers beside the operands: AVX-512 has 32 registers,
// others 16.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3;
constexpr int kTileVectors = kManyRegisters ? 4 : 2;
constexpr int TileRows(int vectors) {
  if (kManyRegisters) return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 8 : 16;
  return vectors == 2 ? 6 : 8;
}

template <int kRows, int kVectors>
HWY_INLINE void ProductTile(LeftBlock a, RightBlock b, ResultBlock c, int64_t steps,
                            Result result) {
  const DF d;
  const int64_t lanes = NumLanes();
  VF sums[kRows][kVectors];
  HWY_UNROLL(16)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::Zero(d);
  }
  for (int64_t step = 0; step < steps; ++step) {
    VF right[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v)
      right[v] = hn::LoadU(d, b.data + step * b.row_stride + v * lanes);
    HWY_UNROLL(16)
    for (int row = 0; row < kRows; ++row) {
      const VF left = hn::Set(d, a.data[row * a.row_stride + step * a.step_stride]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sums[row][v] = hn::MulAdd(left, right[v], sums[row][v]);
    }
  }
  HWY_UNROLL(16)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      float* to = c.data + row * c.row_stride + v * lanes;
      VF sum = sums[row][v];
      if (result == Result::kAdd) sum = hn::Add(sum, hn::LoadU(d, to));
      hn::StoreU(sum, d, to);
    }
  }
}

// Computes rows [row, rows) of one column of tiles: tall tiles first, halves for the rest.
template <int kRows, int kVectors>
HWY_INLINE void ProductRows(LeftBlock a, RightBlock b, ResultBlock c, int64_t row, int64_t rows,
                            int64_t steps, Result result) {
  for (; row + kRows <= rows; row += kRows) {
    ProductTile<kRows, kVectors>({a.data + row * a.row_stride, a.row_stride, a.step_stride}, b,
                                 {c.data + row * c.row_stride, c.row_stride}, steps, result);
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 8 ? 8 : kRows > 4 ? 4 : kRows > 2 ? 2 : 1;
    if (row < rows) ProductRows<kFewer, kVectors>(a, b, c, row, rows, steps, result);
  }
}

template <int kVectors>
HWY_NOINLINE void ProductColumns(LeftBlock a, RightBlock b, ResultBlock c, int64_t rows,
                                 int64_t steps, Result result) {
  ProductRows<TileRows(kVectors), kVectors>(a, b, c, 0, rows, steps, result);
}

// Computes c = a b or c += a b, with c of rows x (vectors * NumLanes()).
HWY_INLINE void Product(LeftBlock a, RightBlock b, ResultBlock c, int64_t rows, int64_t vectors,
                        int64_t steps, Result result) {
  const int64_t lanes = NumLanes();
  for (; vectors >= kTileVectors; vectors -= kTileVectors) {
    ProductColumns<kTileVectors>(a, b, c, rows, steps, result);
    b.data += kTileVectors * lanes;
    c.data += kTileVectors * lanes;
  }
  if (vectors == 1) ProductColumns<1>(a, b, c, rows, steps, result);
  if constexpr (kTileVectors > 2) {
    if (vectors == 2) ProductColumns<2>(a, b, c, rows, steps, result);
    if (vectors == 3) ProductColumns<3>(a, b, c, rows, steps, result);
  }
}

// Sets to[column][row] = from[row][column]; rows and columns are multiples of 4.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void Transpose(RightBlock from, int64_t rows, int64_t columns, ResultBlock to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to.data[column * to.row_stride + row] = from.data[row * from.row_stride + column];
    }
  }
}
#else
HWY_INLINE void Transpose(RightBlock from, int64_t rows, int64_t columns, ResultBlock to) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pair;
  for (int64_t column = 0; column < columns; column += 4) {
    for (int64_t row = 0; row < rows; row += 4) {
      const float* source = from.data + row * from.row_stride + column;
      auto r0 = hn::LoadU(d, source), r1 = hn::LoadU(d, source + from.row_stride);
      auto r2 = hn::LoadU(d, source + 2 * from.row_stride),
           r3 = hn::LoadU(d, source + 3 * from.row_stride);
      auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, r0, r1));
      auto high01 = hn::BitCast(pair, hn::InterleaveUpper(d, r0, r1));
      auto low23 = hn::BitCast(pair, hn::InterleaveLower(d, r2, r3));
      auto high23 = hn::BitCast(pair, hn::InterleaveUpper(d, r2, r3));
      float* target = to.data + column * to.row_stride + row;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, low01, low23)), d, target);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23)), d,
                 target + to.row_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pair, high01, high23)), d,
                 target + 2 * to.row_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pair, high01, high23)), d,
                 target + 3 * to.row_stride);
    }
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#endif
