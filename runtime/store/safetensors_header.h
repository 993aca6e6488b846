// Parses the JSON header of a safetensors file. This parser checks syntax and kinds; the reader
// checks agreement with the file.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::store {

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    std::vector<int64_t> offsets;  // exactly two, from the end of the header
  };
  std::vector<Tensor> tensors;  // in the order of the header; names are unique
  std::map<std::string, std::string> metadata;
};

// kDataLoss names `path` and the flaw. Rejects duplicate names, unknown keys, more than 100,000
// tensors, more than 16 numbers in a shape, numbers that are not integers from 0 to 2^63 - 1, and
// anything nested deeper.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& path, const char* text,
                                                         int64_t length);

}  // namespace weir::store
