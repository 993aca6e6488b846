// Keeps the checkpoint or the weights of an earlier run when a run is about to replace them with
// those of fewer steps. Thread rule: one thread at a time for a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace weir::train {

// Returns the steps behind the file at `path` if the file is a checkpoint, or weights that a run
// has saved, of more than `steps_done` steps.
std::optional<int64_t> FindEarlierRun(const std::string& path, int64_t steps_done);

// Keeps that file as PATH.before, in place of an earlier file of that name, unless the earlier file
// has more steps. The file at `path` stays, too. Links are followed. Returns the path of the kept
// file; nullopt if the function kept nothing. CannotWrite (runtime/store/pending_file.h) if the
// file cannot be kept.
absl::StatusOr<std::optional<std::string>> KeepEarlierRun(const std::string& path,
                                                          int64_t steps_done);

}  // namespace weir::train
