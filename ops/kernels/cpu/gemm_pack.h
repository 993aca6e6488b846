// Copies matrices into the order that a matrix product reads. Everything here runs on the calling
// thread; elements are opaque bits. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace weir::kernels {

// Sets dst[c * dst_stride + r] = src[r * src_stride + c] for r < rows, c < cols. element_bytes is 2
// or 4; strides count elements.
void TransposeTile(int64_t element_bytes, const void* src, int64_t rows, int64_t cols,
                   int64_t src_stride, void* dst, int64_t dst_stride);

// A PanelLayout is the layout in which oneDNN's block kernels read the right-hand operand of a
// product: panels of `columns` columns. In a panel, rows follow each other in groups of `group` (2
// for bf16, 1 for f32), and a group holds `group` consecutive rows of one column side by side. Rows
// are padded to `padded_rows`, columns to `columns`, with zeros.
struct PanelLayout {
  int64_t columns = 64;
  int64_t group = 1;
  int64_t padded_rows = 0;
  int64_t panel_elements() const { return columns * padded_rows; }
};

enum class Storage : uint8_t { kPlain, kTransposed };

// Writes panel `panel` of the k x n matrix `src` to `dst` (the panel's own place). kPlain: src
// is [k, n]; kTransposed: src is [n, k]; row-major and dense.
void PackPanel(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
               const PanelLayout& layout, int64_t panel, void* dst);

// The same without groups, for elements that are widened afterwards: row r of the panel lies at
// r * layout.columns. `layout.group` is 1, whatever the type.
void PackPanelUngrouped(DType dtype, Storage storage, const void* src, int64_t k, int64_t n,
                        const PanelLayout& layout, int64_t panel, void* dst);

// Converts n elements from one real type to another.
void ConvertReal(DType from, DType to, const void* src, void* dst, int64_t n);

}  // namespace weir::kernels
