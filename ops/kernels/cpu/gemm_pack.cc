#include "ops/kernels/cpu/gemm_pack.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/gemm_pack.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlockBytes = 16;  // shuffles stay inside 128-bit blocks

using D32 = hn::ScalableTag<uint32_t>;
using D16 = hn::ScalableTag<uint16_t>;

#if HWY_TARGET != HWY_SCALAR

// Returns a vector whose 128-bit block j holds 16 bytes of row j * rows_per_block.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const uint8_t* src, int64_t stride_bytes,
                                 int64_t rows_per_block) {
  using T = hn::TFromD<D>;
  constexpr int64_t kVectorBytes = static_cast<int64_t>(hn::MaxLanes(D()) * sizeof(T));
  if constexpr (kVectorBytes <= kBlockBytes) {
    return hn::LoadU(d, reinterpret_cast<const T*>(src));
  } else {
    const hn::Half<D> half;
    auto low = LoadBlocks(half, src, stride_bytes, rows_per_block);
    constexpr int64_t kBlocksBelow = kVectorBytes / kBlockBytes / 2;
    auto high = LoadBlocks(half, src + kBlocksBelow * rows_per_block * stride_bytes, stride_bytes,
                           rows_per_block);
    return hn::Combine(d, high, low);
  }
}

using D64 = hn::ScalableTag<uint64_t>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;

HWY_INLINE V64 Wide(V32 v) { return hn::BitCast(D64(), v); }
HWY_INLINE V32 Narrow(V64 v) { return hn::BitCast(D32(), v); }

// Transposes Lanes(D32) rows by 4 columns.
HWY_INLINE void TransposeBlock32(const uint8_t* src, int64_t stride_bytes, uint32_t* dst,
                                 int64_t dst_stride) {
  const D32 d;
  V32 row0 = LoadBlocks(d, src, stride_bytes, 4);
  V32 row1 = LoadBlocks(d, src + stride_bytes, stride_bytes, 4);
  V32 row2 = LoadBlocks(d, src + 2 * stride_bytes, stride_bytes, 4);
  V32 row3 = LoadBlocks(d, src + 3 * stride_bytes, stride_bytes, 4);
  V64 low01 = Wide(hn::InterleaveLower(d, row0, row1)),
      low23 = Wide(hn::InterleaveLower(d, row2, row3));
  V64 high01 = Wide(hn::InterleaveUpper(d, row0, row1)),
      high23 = Wide(hn::InterleaveUpper(d, row2, row3));
  hn::StoreU(Narrow(hn::InterleaveLower(D64(), low01, low23)), d, dst);
  hn::StoreU(Narrow(hn::InterleaveUpper(D64(), low01, low23)), d, dst + dst_stride);
  hn::StoreU(Narrow(hn::InterleaveLower(D64(), high01, high23)), d, dst + 2 * dst_stride);
  hn::StoreU(Narrow(hn::InterleaveUpper(D64(), high01, high23)), d, dst + 3 * dst_stride);
}

// Stores two columns, made from the four row pairs' 32-bit interleavings of them.
HWY_INLINE void StoreColumns16(V32 a, V32 b, uint16_t* dst, int64_t dst_stride) {
  const D16 d;
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(D64(), Wide(a), Wide(b))), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(D64(), Wide(a), Wide(b))), d, dst + dst_stride);
}

// Transposes Lanes(D16) rows by 8 columns.
HWY_INLINE void TransposeBlock16(const uint8_t* src, int64_t stride_bytes, uint16_t* dst,
                                 int64_t dst_stride) {
  const D16 d;
  const D32 d32;
  V32 low[4], high[4];  // of row pairs (0, 1), (2, 3), (4, 5), (6, 7)
  for (int i = 0; i < 4; ++i) {
    auto even = LoadBlocks(d, src + 2 * i * stride_bytes, stride_bytes, 8);
    auto odd = LoadBlocks(d, src + (2 * i + 1) * stride_bytes, stride_bytes, 8);
    low[i] = hn::BitCast(d32, hn::InterleaveLower(d, even, odd));
    high[i] = hn::BitCast(d32, hn::InterleaveUpper(d, even, odd));
  }
  StoreColumns16(hn::InterleaveLower(d32, low[0], low[1]), hn::InterleaveLower(d32, low[2], low[3]),
                 dst, dst_stride);
  StoreColumns16(hn::InterleaveUpper(d32, low[0], low[1]), hn::InterleaveUpper(d32, low[2], low[3]),
                 dst + 2 * dst_stride, dst_stride);
  StoreColumns16(hn::InterleaveLower(d32, high[0], high[1]),
                 hn::InterleaveLower(d32, high[2], high[3]), dst + 4 * dst_stride, dst_stride);
  StoreColumns16(hn::InterleaveUpper(d32, high[0], high[1]),
                 hn::InterleaveUpper(d32, high[2], high[3]), dst + 6 * dst_stride, dst_stride);
}

#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
void TransposeScalar(const uint8_t* src, int64_t stride_bytes, int64_t rows, int64_t cols, T* dst,
                     int64_t dst_stride) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(dst + c * dst_stride + r,
                  src + r * stride_bytes + c * static_cast<int64_t>(sizeof(T)), sizeof(T));
    }
  }
}

// Whole vectors of rows come first, then the rest. Where rows of the result lie far apart, only a
// few rows are done at a time, front to back, in bands of columns as wide as a cache line of src.
// src_stride is in bytes, so that pairs of bf16 may count as 32-bit elements of rows of odd length.
template <class T>
void TransposeBytes(const uint8_t* src, int64_t stride_bytes, int64_t rows, int64_t cols, T* dst,
                    int64_t dst_stride) {
  int64_t whole_rows = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSize = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kCols = kBlockBytes / kSize, kNearBytes = 512;
  const int64_t group = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t whole_cols = cols / kCols * kCols;
  const int64_t band_cols =
      dst_stride * kSize <= kNearBytes ? std::max<int64_t>(whole_cols, 1) : 64 / kSize;
  whole_rows = rows / group * group;
  for (int64_t band = 0; band < whole_cols; band += band_cols) {
    const int64_t band_end = std::min(whole_cols, band + band_cols);
    for (int64_t r = 0; r < whole_rows; r += group) {
      for (int64_t c = band; c < band_end; c += kCols) {
        const uint8_t* at = src + r * stride_bytes + c * kSize;
        if constexpr (sizeof(T) == 4) {
          TransposeBlock32(at, stride_bytes, dst + c * dst_stride + r, dst_stride);
        } else {
          TransposeBlock16(at, stride_bytes, dst + c * dst_stride + r, dst_stride);
        }
      }
    }
  }
  TransposeScalar(src + whole_cols * kSize, stride_bytes, whole_rows, cols - whole_cols,
                  dst + whole_cols * dst_stride, dst_stride);
#endif
  TransposeScalar(src + whole_rows * stride_bytes, stride_bytes, rows - whole_rows, cols,
                  dst + whole_rows, dst_stride);
}

void TransposeAny(int64_t element_bytes, const void* src, int64_t rows, int64_t cols,
                  int64_t src_stride, void* dst, int64_t dst_stride) {
  const uint8_t* from = static_cast<const uint8_t*>(src);
  if (element_bytes == 2) {
    TransposeBytes(from, src_stride * 2, rows, cols, static_cast<uint16_t*>(dst), dst_stride);
  } else {
    TransposeBytes(from, src_stride * 4, rows, cols, static_cast<uint32_t*>(dst), dst_stride);
  }
}

void PackPlain32(const uint32_t* src, int64_t k, int64_t n, const PanelLayout& layout,
                 int64_t column, uint32_t* dst) {
  const D32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t used = std::min(layout.columns, n - column);
  for (int64_t row = 0; row < k; ++row) {
    const uint32_t* from = src + row * n + column;
    uint32_t* to = dst + row * layout.columns;
    int64_t i = 0;
    for (; i + lanes <= used; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    for (; i < used; ++i) to[i] = from[i];
    for (; i < layout.columns; ++i) to[i] = 0;
  }
}

// Interleaves rows 2r and 2r + 1; the second row is null past the end.
void PackPlain16(const uint16_t* src, int64_t k, int64_t n, const PanelLayout& layout,
                 int64_t column, uint16_t* dst) {
  const D16 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t used = std::min(layout.columns, n - column);
  for (int64_t row = 0; row < k; row += 2) {
    const uint16_t* even = src + row * n + column;
    const uint16_t* odd = row + 1 < k ? even + n : nullptr;
    uint16_t* to = dst + row * layout.columns;
    int64_t i = 0;
    for (; i + lanes <= used; i += lanes) {
      auto first = hn::LoadU(d, even + i);
      auto second = odd ? hn::LoadU(d, odd + i) : hn::Zero(d);
      hn::StoreInterleaved2(first, second, d, to + 2 * i);
    }
    for (; i < layout.columns; ++i) {
      to[2 * i] = i < used ? even[i] : 0;
      to[2 * i + 1] = i < used && odd ? odd[i] : 0;
    }
  }
}

void PackPanelAny(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
                  const PanelLayout& layout, int64_t panel, void* dst) {
  const int64_t size = SizeOf(dtype);
  const int64_t column = panel * layout.columns;
  const int64_t used = std::min(layout.columns, n - column);
  const int64_t written_rows = (k + layout.group - 1) / layout.group * layout.group;
  uint8_t* bytes = static_cast<uint8_t*>(dst);
  std::memset(bytes + written_rows * layout.columns * size, 0,
              (layout.padded_rows - written_rows) * layout.columns * size);
  if (storage == Storage::kPlain) {
    if (size == 4) {
      PackPlain32(static_cast<const uint32_t*>(src), k, n, layout, column,
                  static_cast<uint32_t*>(dst));
    } else {
      PackPlain16(static_cast<const uint16_t*>(src), k, n, layout, column,
                  static_cast<uint16_t*>(dst));
    }
    return;
  }
  // Groups of rows are 32-bit units in both types: one f32, or two bf16.
  if (used < layout.columns) std::memset(bytes, 0, written_rows * layout.columns * size);
  const uint8_t* from = static_cast<const uint8_t*>(src) + column * k * size;
  const int64_t whole_groups = k / layout.group;
  TransposeBytes(from, k * size, used, whole_groups, static_cast<uint32_t*>(dst), layout.columns);
  if (whole_groups * layout.group < k) {
    uint16_t* last = static_cast<uint16_t*>(dst) + whole_groups * layout.columns * 2;
    for (int64_t c = 0; c < used; ++c) {
      last[2 * c] = reinterpret_cast<const uint16_t*>(from)[c * k + k - 1];
      last[2 * c + 1] = 0;
    }
  }
}

void PackPanelUngroupedAny(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
                           const PanelLayout& layout, int64_t panel, void* dst) {
  const int64_t size = SizeOf(dtype), row_bytes = layout.columns * size;
  const int64_t column = panel * layout.columns;
  const int64_t used = std::min(layout.columns, n - column);
  uint8_t* const bytes = static_cast<uint8_t*>(dst);
  const bool is_plain = storage == Storage::kPlain;
  const int64_t written = used < layout.columns ? 0 : k;  // rows without padding
  std::memset(bytes + written * row_bytes, 0, (layout.padded_rows - written) * row_bytes);
  const uint8_t* from = static_cast<const uint8_t*>(src) + column * (is_plain ? 1 : k) * size;
  if (is_plain) {
    for (int64_t row = 0; row < k; ++row)
      std::memcpy(bytes + row * row_bytes, from + row * n * size, used * size);
    return;
  }
  TransposeAny(size, from, used, k, k, dst, layout.columns);
}

void ConvertAny(DType from, DType to, const void* src, void* dst, int64_t n) {
  WithReal(from, [&](auto* x_type) HWY_ATTR {
    using TX = std::remove_pointer_t<decltype(x_type)>;
    WithReal(to, [&](auto* y_type) HWY_ATTR {
      using TY = std::remove_pointer_t<decltype(y_type)>;
      MapInto(
          static_cast<TY*>(dst), n, [](VF v) HWY_ATTR { return v; }, static_cast<const TX*>(src));
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(TransposeAny);
HWY_EXPORT(PackPanelAny);
HWY_EXPORT(PackPanelUngroupedAny);
HWY_EXPORT(ConvertAny);

void TransposeTile(int64_t element_bytes, const void* src, int64_t rows, int64_t cols,
                   int64_t src_stride, void* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeAny)(element_bytes, src, rows, cols, src_stride, dst, dst_stride);
}

void PackPanel(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
               const PanelLayout& layout, int64_t panel, void* dst) {
  HWY_DYNAMIC_DISPATCH(PackPanelAny)(dtype, storage, src, k, n, layout, panel, dst);
}

void PackPanelUngrouped(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
                        const PanelLayout& layout, int64_t panel, void* dst) {
  HWY_DYNAMIC_DISPATCH(PackPanelUngroupedAny)(dtype, storage, src, k, n, layout, panel, dst);
}

void ConvertReal(DType from, DType to, const void* src, void* dst, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ConvertAny)(from, to, src, dst, n);
}

}  // namespace weir::kernels
#endif  // HWY_ONCE
