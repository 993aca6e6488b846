// Keeps the checkpoint of an earlier run when a run is about to replace it with one of fewer steps.
// Thread rule: one thread at a time for a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace weir::train {

// Returns the step of the checkpoint at `path` if the file is a checkpoint of more than
// `steps_done` steps.
std::optional<int64_t> FindEarlierCheckpoint(const std::string& path, int64_t steps_done);

// Keeps that checkpoint as PATH.before, in place of an earlier file of that name, unless the
// earlier file is a checkpoint of more steps. The file at `path` stays, too. Links are followed.
// Returns the path of the kept file; nullopt if the function kept nothing. CannotWrite
// (runtime/store/pending_file.h) if the checkpoint cannot be kept.
absl::StatusOr<std::optional<std::string>> KeepEarlierCheckpoint(const std::string& path,
                                                                 int64_t steps_done);

}  // namespace weir::train
