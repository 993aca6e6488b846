// A TensorArchive holds named tensors and notes, and writes them to one safetensors file for the
// Python side of a test. A TensorArchive is no checkpoint: everything is in memory until the
// write. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/tensor_slice.h"

namespace weir::oracle {

class TensorArchive {
 public:
  // Adds a tensor. Names are unique; a later tensor replaces an earlier one of the same name.
  // `values` has the elements of `shape`.
  void Add(const std::string& name, const Shape& shape, const std::vector<float>& values);
  void Add(const std::string& name, const Shape& shape, const std::vector<int32_t>& values);
  // Masks: 0 or 1 each.
  void Add(const std::string& name, const Shape& shape, const std::vector<uint8_t>& values);
  // Adds text for the header of the file.
  void Note(const std::string& name, const std::string& text) { notes_[name] = text; }

  // Errors: those of SafetensorsWriter.
  absl::Status Write(const std::string& path) const;

 private:
  struct Tensor {
    DType dtype = DType::kF32;
    Shape shape;
    std::string bytes;
  };

  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> notes_;
};

}  // namespace weir::oracle
