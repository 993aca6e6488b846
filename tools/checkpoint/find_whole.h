// Finds the checkpoint from which a run goes on if the last one is damaged: the newest one that is
// whole. A checkpoint is whole if its index is readable, its files have their sizes and headers,
// and its values have their checksums and content sums. Values are not read if they are many
// (kContentsReadMax), or on other hosts.
// Thread rule: pure functions over files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::checkpoint {

// Returns an error for a text that has its own advice, without the advice and the last full stop.
std::string WithoutAdvice(const absl::Status& status);

// OkStatus if the checkpoint at `path` (DIR/step-000000120, a file or an index) is whole. kDataLoss
// or kNotFound: what is damaged or lacks, with the file and the tensor. kInvalidArgument (W0721): a
// newer format.
absl::Status CheckWhole(const std::string& path);

struct WholeCheckpoint {
  std::string path;  // DIR/step-000000100
  // For people: which newer checkpoints are passed over, and why. Empty: the one that was wanted.
  std::vector<std::string> warnings;
};
// Return such warnings: that the checkpoint at `path` is passed over, which is damaged or of
// another run (IsOfAnother), without advice, as the run takes another one itself; and that the run
// goes on from that in `folder` instead, so many steps before the one that was wanted.
std::string PassedOverText(const std::string& path, const absl::Status& why);
std::string GoesOnFromText(const std::string& folder, int64_t steps_again);

// Returns the checkpoint that `latest` of the folder of a run names if that one is whole, else the
// newest whole one before it, or of all if `latest` names none. kNotFound (W0711): the folder has
// no committed checkpoint. kDataLoss (W0725): none is whole. kInvalidArgument: see CheckWhole.
absl::StatusOr<WholeCheckpoint> FindWhole(const std::string& directory);

// Returns whether no run has committed a checkpoint in this folder of a run: the folder has no
// step, be it whole or damaged, and no `latest`. Steps that killed runs were writing do not count.
// A folder that is not there has none, and one that cannot be listed may have some.
bool HasNoSteps(const std::string& directory);

// Returns the error of CheckWhole. If there is an earlier checkpoint beside `folder` that is whole,
// the advice names it.
absl::Status CheckNamed(const std::string& folder);

}  // namespace weir::checkpoint
