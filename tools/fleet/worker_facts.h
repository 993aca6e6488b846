// The facts about its ranks that a worker tells its starter: states, metrics, work, parts of
// checkpoints, and input files. Thread rule: pure functions, except for reading files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/session/session.h"
#include "proto/worker.pb.h"
#include "tools/train/metric_log.h"
#include "tools/train/session_states.h"

namespace weir::fleet {

// Adds to the answer the states of this worker's ranks.
void AddStates(const std::map<std::string, train::StateType>& states, proto::WorkerAnswer* answer);
// Adds the states in the answer to `states`. kInternal: a type or a class of another version.
absl::Status TakeStates(const proto::WorkerAnswer& answer,
                        std::map<std::string, train::StateType>* states);

// Adds the metrics of steps, by step.
void AddMetrics(const std::map<int64_t, train::StepMetrics>& reported, proto::WorkerAnswer* answer);
// Adds the time that ranks have worked, as planned and as measured.
void AddWork(const std::vector<actors::RankWorkReport>& work, proto::WorkerAnswer* answer);
// Adds what is saved of each state of a checkpoint, by the name of the state.
void AddParts(const std::map<std::string, train::SavedPart>& parts, proto::WorkerAnswer* answer);

// Adds the fingerprints of the files that the command names, as this host has the files.
void AddInputFiles(const google::protobuf::RepeatedPtrField<std::string>& files,
                   proto::WorkerAnswer* answer);

}  // namespace weir::fleet
