// Says how a run goes on after it has lost processes or was interrupted: with which command it is
// taken up again, and when its mesh grows again.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launch/growth_policy.h"
#include "tools/launch/restart_policy.h"

namespace weir::cli {

// The command line that has started a run, as the user has typed it.
struct TypedCommand {
  std::string program;                 // "weir", "bazel-bin/tools/weir"
  std::vector<std::string> arguments;  // the words behind the program
  std::string job;                     // the JOB among them
};

// Returns the line that names the command which takes up the run from `checkpoint`, for a shell:
// the one that has started the run, with --resume in the place of its --resume, or of its --init
// and --average. If that command has read the job from a stream, the line says that the job must be
// given again.
std::string HowToGoOn(const TypedCommand& command, const std::string& checkpoint);

// Returns a warning about a process that has ended after the last step. `incomplete`: the outputs
// of the run that lack something.
std::string EndedAfterTheWork(const std::vector<std::string>& incomplete);

// Returns a line on when a mesh that has become smaller grows again, and which option says so.
// Call after growth.NoteSmaller or NoteRefused. Times are monotonic.
std::string GrowthOutlook(const launch::GrowthPolicy& growth, const launch::RestartPolicy& restarts,
                          int64_t now_ms);

}  // namespace weir::cli
