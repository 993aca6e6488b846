// Copies states between sessions whose plans may lay them out differently.
// Thread rule: between runs of both sessions, one thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "actors/session/session.h"

namespace weir::train {

// Returns whether the local ranks of `from` hold every element of every fetched state of the local
// ranks of `to`, but of `except`. Always true if both sessions hold all ranks of their jobs.
bool HoldsFetchedStates(const actors::Session& from, const std::string& except,
                        const actors::Session& to);

// Copies every fetched state of `to` but `except` from the shards that the local ranks of `from`
// hold of the state with the same name. Precondition: HoldsFetchedStates.
absl::Status CopyFetchedStates(const actors::Session& from, const std::string& except,
                               actors::Session* to);

}  // namespace weir::train
