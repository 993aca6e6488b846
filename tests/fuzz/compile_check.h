// Checks the promise for any job, sound or not. Either the job compiles and lowers, and every
// rank's plan passes the rank's checks at loading, including the certificate, and stages that share
// a plan have the memory of their own plans; or the job is refused with a code and the exit code of
// a refused job. A fault of Weir (kInternal) is a failure. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::fuzz {

struct CompileCheck {
  // The number of ranks that are lowered on larger meshes, evenly over the mesh. The plans of these
  // ranks are checked together.
  int64_t ranks_lowered_max = 64;
};

// Compiles `job` in every mode and checks the plans of its ranks. Returns the code with which the
// job is refused for training, or "" if the job is sound. An error says what went wrong and is a
// fault of Weir.
absl::StatusOr<std::string> CheckCompile(const proto::Job& job, const CompileCheck& check = {});

// Returns the code with which `stage` refuses a job. An error is a fault of Weir: a refusal without
// a code, or with an exit code of another kind.
absl::StatusOr<std::string> CodeOf(const char* stage, const absl::Status& status);

// Returns whether a job repeats calls so often that compiling it only takes time. A job with too
// many calls is refused before anything is built.
bool RepeatsVeryOften(const proto::Job& job);

}  // namespace weir::fuzz
