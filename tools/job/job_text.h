// Prints a job as text for a person to read and edit: short messages stand on one line ("dim {
// name: \"batch\" size: 8 }"), and sections have comments. The same job always gives the same text.
// Not a general printer of messages: the printer knows the purpose of each part of a job.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace weir::job {

// Returns the text of the job. `title` becomes the first comment and is split into lines at
// '\n'.
std::string JobText(const proto::Job& job, const std::string& title);

}  // namespace weir::job
