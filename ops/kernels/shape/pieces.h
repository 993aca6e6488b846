// Pieces cuts a range into parts of one fixed size, the last part shorter. The size depends on the
// shape alone, never on the number of threads. Thread rule: value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir::kernels {

struct Pieces {
  int64_t total = 0;
  int64_t size = 1;

  int64_t count() const { return (total + size - 1) / size; }
  int64_t begin(int64_t piece) const { return piece * size; }
  int64_t end(int64_t piece) const { return std::min(total, (piece + 1) * size); }
  int64_t length(int64_t piece) const { return end(piece) - begin(piece); }

  // Returns pieces of rows of `row_elements` each, with about `elements` to a piece.
  static Pieces OfRows(int64_t rows, int64_t row_elements, int64_t elements) {
    return Pieces{rows, std::max<int64_t>(1, elements / std::max<int64_t>(1, row_elements))};
  }
};

// Elements of a piece: kLightPiece for loops that do little per element, the other for loops that
// do much.
constexpr int64_t kLightPiece = 32768;
constexpr int64_t kHeavyPiece = 8192;

constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
constexpr int64_t kCacheLine = 64;

}  // namespace weir::kernels
