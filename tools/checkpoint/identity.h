// An identity tells a checkpoint from any other that may stand at its path later. It has the run
// that has written the checkpoint, the step, and a checksum. Thread rule: pure functions over
// files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::checkpoint {

struct Identity {
  std::string run;   // store::CheckpointFacts::job_id; empty: the checkpoint does not name its run
  int64_t step = 0;  // steps done
  // The CRC32C of the index, or of the headers of files. An index has the checksums of all values,
  // and so have the headers of files that have checksums. Two files without checksums, as other
  // programs write them, may differ in their values alone and have the same headers.
  uint32_t sum = 0;
};

// Returns the identity of the checkpoint at `path`, which has one of the forms of --resume. Errors
// as of SafetensorsReader::Open.
absl::StatusOr<Identity> IdentityOf(const std::string& path);

// Checks that the checkpoint at `path` is the expected one. kDataLoss (W0967): the path has another
// one. Errors as of IdentityOf.
absl::Status CheckIdentity(const std::string& path, const Identity& expected);
// Returns whether `status` says so (W0967).
bool IsOfAnother(const absl::Status& status);

}  // namespace weir::checkpoint
