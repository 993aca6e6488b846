// The facts about loaded ranks that a worker tells its starter: its states, and its input files.
// Thread rule: pure functions, except for reading files.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "tools/train/session_states.h"

namespace weir::fleet {

// Adds to the answer the states of this worker's ranks.
void AddStates(const std::map<std::string, train::StateType>& states, proto::WorkerAnswer* answer);
// Adds the states in the answer to `states`. kInternal: a type or a class of another version.
absl::Status TakeStates(const proto::WorkerAnswer& answer,
                        std::map<std::string, train::StateType>* states);

// Adds the fingerprints of the files that the command names, as this host has the files.
void AddInputFiles(const proto::OpenCommand& command, proto::WorkerAnswer* answer);

}  // namespace weir::fleet
