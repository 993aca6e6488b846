// What must hold of any job whatever, sound or not: it compiles and lowers, and every rank's plan
// passes what a rank checks when it loads the plan, its certificate too; or the job is refused with
// a code and the exit code of a refused job. A fault of ours (kInternal) is a failure. Thread rule:
// pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

struct CompileCheck {
  // Of larger meshes as many ranks are lowered, evenly over the mesh, and those are looked at
  // together.
  int64_t ranks_lowered_max = 64;
};

// Compiles `job` in every mode and checks the plans of its ranks. The code with which the job is
// refused for training, or
// "" if it is sound. An error says what went wrong, and is a fault of ours.
absl::StatusOr<std::string> CheckCompile(const Job& job, const CompileCheck& check = {});

// Whether a job repeats calls so often that compiling it only takes time. What is too many is
// refused before anything is built.
bool RepeatsVeryOften(const Job& job);

}  // namespace weir
