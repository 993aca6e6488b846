// A StoredArray is an array in a file, row-major, whose first dimension counts samples. Elements
// are read piece by piece from the file and never held as a whole.
//
// ArraysIn lists the arrays of a folder of .npy files, of an .npz file (members that are stored,
// not compressed) or of a safetensors file. Nothing in a file is trusted: sizes are compared with
// the file, and lists are bounded. Thread rule: immutable; any thread reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/watched_file.h"

namespace weir::store {

enum class ElementType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
};
const char* Name(ElementType type);  // "u8"
int64_t WidthOf(ElementType type);   // bytes
bool IsInteger(ElementType type);    // not kBool
bool IsReal(ElementType type);

// element * by + plus, computed in double precision.
struct ElementScale {
  double by = 1;
  double plus = 0;
};

// Returns whether elements of `from` can be read as `to`: integers and truth values as i32;
// integers, which must be 0 or 1, and truth values as bool; real numbers and truth values as f32;
// with a scale, everything as f32 and nothing else.
bool Converts(ElementType from, DType to, bool has_scale);

class StoredArray {
 public:
  // `place` says in messages where the array is: "data.npz, array x". `file` has `begin` +
  // elements * width bytes at least.
  StoredArray(std::string place, std::shared_ptr<const WatchedFile> file, int64_t begin,
              ElementType type, Shape shape)
      : place_(std::move(place)),
        file_(std::move(file)),
        begin_(begin),
        type_(type),
        shape_(std::move(shape)) {}

  const std::string& place() const { return place_; }
  ElementType type() const { return type_; }
  const Shape& shape() const { return shape_; }  // of at least one dimension
  int64_t samples() const { return shape_[0]; }
  // "u8[60000, 28, 28]"
  std::string TypeText() const;
  // "sample 3" or "sample 3, element 17", of the element at a row-major position.
  std::string PositionText(int64_t position) const;

  // Reads elements [begin, begin + count) as `dtype`. Precondition: Converts, and the elements are
  // in the array. kInvalidArgument (W0793): an element that i32 or bool does not have, or a
  // finite one that is infinite as f32, with its sample. kDataLoss: see WatchedFile.
  absl::Status Read(int64_t begin, int64_t count, DType dtype,
                    const std::optional<ElementScale>& scale, void* out) const;

  // Reads elements as numbers of C++, whatever their type: exact up to 2^53, for people to look at.
  // Precondition and kDataLoss as of Read.
  absl::Status ReadNumbers(int64_t begin, int64_t count, double* out) const;

  // Returns the first element from `begin` on that is not in a hole of a sparse file. All elements
  // before it are 0.
  int64_t SkipHole(int64_t begin) const;

 private:
  std::string place_;
  std::shared_ptr<const WatchedFile> file_;
  int64_t begin_;
  ElementType type_;
  Shape shape_;
};

// Opens a .npy file. kNotFound: no file. kInvalidArgument (W0790): no array of a known type, in
// row-major order, with at least one dimension. `purpose` goes into errors.
absl::StatusOr<StoredArray> OpenNpyArray(const std::string& path, const std::string& purpose);

// Opens all arrays of a folder of .npy files, of an .npz file or of a safetensors file, by name.
// Tensors of safetensors that are no arrays of samples (scalars) are left out. Errors as
// OpenNpyArray.
absl::StatusOr<std::map<std::string, StoredArray>> ArraysIn(const std::string& path,
                                                            const std::string& purpose);

}  // namespace weir::store
