// Writes a .npy file of NumPy, element by element, whole or not at all: the file appears under its
// name with Publish. The elements are those of a dense row-major array.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/pending_file.h"

namespace weir::store {

class NpyWriter {
 public:
  // Begins the file. NumPy knows no bf16, so an array of bf16 becomes one of f32, with equal
  // values. CannotWrite (pending_file.h): the file cannot be made.
  static absl::StatusOr<std::unique_ptr<NpyWriter>> Create(const std::string& path, DType dtype,
                                                           const Shape& shape);

  // Appends elements of the array, `bytes` of `dtype` as given to Create. Precondition: `bytes` is
  // a multiple of the size of an element, and the array has room for them.
  absl::Status Append(const void* data, int64_t bytes);
  // Gives the file its name. kInternal: elements are missing.
  absl::Status Publish();

  const std::string& path() const { return path_; }

 private:
  NpyWriter(std::string path, DType dtype, int64_t elements)
      : path_(std::move(path)), dtype_(dtype), missing_(elements) {}
  absl::Status Write(const char* data, int64_t bytes);

  const std::string path_;
  const DType dtype_;
  int64_t missing_;  // elements
  PendingFile file_;
};

}  // namespace weir::store
