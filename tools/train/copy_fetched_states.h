// Copies states between sessions whose plans may lay them out differently.
// Thread rule: between runs of both sessions, one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "actors/session/session.h"

namespace weir::train {

// Copies every fetched state of `to` but `except` from the shards that the local ranks of `from`
// hold of the state with the same name. Both sessions hold all ranks of their jobs.
absl::Status CopyFetchedStates(const actors::Session& from, const std::string& except,
                               actors::Session* to);

}  // namespace weir::train
