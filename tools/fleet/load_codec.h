// The order to load a file of weights or a checkpoint, as the starter sends it to a worker.
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "tools/train/session_states.h"

namespace weir::fleet {

// Fills the command of a worker. `path_on` returns where the worker finds an input file.
void FillLoad(const train::LoadOrder& order,
              const std::function<std::string(const std::string&)>& path_on,
              proto::LoadCommand* load);

// Returns the order of a command. The starter has read the map, and a worker checks what comes over
// the wire: errors as of weights::WeightMap::Make.
absl::StatusOr<train::LoadOrder> LoadOrderOf(const proto::LoadCommand& command);

// Commands say whether a set of states is that of all states.
inline bool IsEverything(train::StateSet set) { return set == train::StateSet::kAll; }
inline train::StateSet StateSetOf(bool everything) {
  return everything ? train::StateSet::kAll : train::StateSet::kWeights;
}

}  // namespace weir::fleet
