// Parses the header of a .npy file of NumPy: element type, shape and order of an array.
// A header is bounded: the parser reads at most the bytes that it is given, and at most 32
// dimensions. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"

namespace weir::store {

// As many bytes of a file as its header can take.
inline constexpr int64_t kNpyHeaderBytesMax = 64 << 10;

struct NpyHeader {
  std::string descr;  // with its quotes, such as "'<u2'"
  std::string shape_text;
  Shape shape;
  bool fortran_order = false;
  int64_t begin = 0;  // bytes from the start of the file to the first element
};

bool IsNpy(const std::vector<uint8_t>& bytes);

// Precondition: IsNpy. `code`: kInvalidArgument with this code and `path` if the header is not that
// of an array.
absl::StatusOr<NpyHeader> ParseNpyHeader(const std::string& code, const std::string& path,
                                         const std::vector<uint8_t>& bytes);

}  // namespace weir::store
