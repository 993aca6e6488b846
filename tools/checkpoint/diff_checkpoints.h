// Compares two checkpoints tensor by tensor, whatever their layouts and files are.
// Thread rule: pure functions over immutable readers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/checkpoint/open_tensors.h"

namespace weir::checkpoint {

struct TensorDiff {
  enum class Kind : uint8_t { kOnlyInA, kOnlyInB, kOtherType, kOtherValues };
  std::string name;
  Kind kind = Kind::kOtherValues;
  std::string a, b;           // type and shape of each; empty: not there
  int64_t elements = 0;       // of the tensor
  int64_t differing = 0;      // elements with other bits
  double max_difference = 0;  // of reals; NaN if one of a pair is NaN and the other is not
};

struct CheckpointDiff {
  std::vector<TensorDiff> tensors;  // those that differ, by name
  int64_t equal = 0;                // tensors that do not
  // The states of one that are not compared, because the other has weights alone and is no
  // checkpoint.
  int64_t left_out = 0;
  enum class Side : uint8_t { kA, kB } with_weights_alone = Side::kB;  // if some are left out
};

// Reads both in pieces. Values of different real types are compared as F32. If one has weights
// alone and is no checkpoint, the weights are compared. Errors: those of reading.
absl::StatusOr<CheckpointDiff> Diff(const OpenTensors& a, const OpenTensors& b);

}  // namespace weir::checkpoint
