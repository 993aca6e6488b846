// Texts about checkpoints for people: tables with columns and units. Thread rule: pure functions,
// except for reading files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/checkpoint/diff_checkpoints.h"
#include "tools/checkpoint/open_tensors.h"

namespace weir::checkpoint {

// Returns a row for each checkpoint of the folder, and what is wrong with those that cannot be
// opened, or whose files lack or have another size. Values are not read, and the text says so.
// kNotFound (W0711): the folder has none; the error names the steps without an index, and what is
// left over.
absl::StatusOr<std::string> ListText(const std::string& directory);

// Remains are in the folder of a run besides committed checkpoints.
struct Remains {
  std::string text;         // a line for each, and one about a `latest` that names no checkpoint
  int64_t num_damaged = 0;  // steps without an index. A run leaves none: the index comes first
  bool has_latest = true;   // `latest` names a committed checkpoint
};
// A folder that is no run's has no remains.
Remains RemainsOf(const std::string& directory);

// Returns the facts of a checkpoint and a row for each tensor, at most `rows_max`; 0: all.
std::string ShowText(const OpenTensors& opened, int64_t rows_max);

// Returns a row for each tensor that differs, at most `rows_max`; 0: all.
std::string DiffText(const CheckpointDiff& diff, int64_t rows_max);

// Returns "12 tensors, 3.4 GiB in 4 files, step 120".
std::string SummaryText(const OpenTensors& opened);

}  // namespace weir::checkpoint
