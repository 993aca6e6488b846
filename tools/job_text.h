// A job as text that a person likes to read and edit: what fits stands on one line
// ("dim { name: \"batch\" size: 8 }"), sections are commented, and the same job always gives
// the same text. Not a general printer of messages: it knows what the parts of a job are for.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace weir {

// `title` becomes the first comment; lines of it are split at '\n'.
std::string JobText(const Job& job, const std::string& title);

}  // namespace weir
