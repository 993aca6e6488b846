// Says how a run goes on after it has lost processes: with which command it is taken up again, and
// when its mesh grows again.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launch/growth_policy.h"
#include "tools/launch/restart_policy.h"

namespace weir::cli {

// Returns the command line that takes up a run from `checkpoint`, for a shell: the one that has
// started the run, with --resume in the place of its --resume or --init. `arguments` are the words
// behind the name of the program.
std::string CommandToResume(const std::vector<std::string>& arguments,
                            const std::string& checkpoint);

// Returns a line on when a mesh that has become smaller grows again, and which option says so.
// Call after growth.NoteSmaller or NoteRefused. Times are monotonic.
std::string GrowthOutlook(const launch::GrowthPolicy& growth, const launch::RestartPolicy& restarts,
                          int64_t now_ms);

}  // namespace weir::cli
