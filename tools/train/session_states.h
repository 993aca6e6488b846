// The states of a session under their names, whatever their layout: each rank writes the
// shards that it owns into one file of whole tensors (safetensors) and reads its shards from
// such a file, so weights move between layouts, and between processes, through the file.
//
// Weights have plain names ("layers.3.wq"); what the optimiser keeps is named after its
// weight ("layers.3.wq/adam_m").
// Thread rule: between runs of the session, one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/launch.h"
#include "runtime/store/safetensors.h"

namespace weir {

enum class StateSet : uint8_t {
  kWeights,
  kAll,  // weights and optimiser states; not fetched results
};

bool BelongsTo(const std::string& name, StateSet set);

struct StateType {
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
};

// The states of `set` over the local ranks of the session, by name.
std::map<std::string, StateType> StatesOf(const Session& session, StateSet set);

// kInvalidArgument if the file lacks a state of `set`, has a shape that differs or, but for
// optimiser states while loading weights, has a tensor that is not among `states` (those of
// all ranks of the job).
absl::Status CheckStates(const SafetensorsReader& file, StateSet set, const std::map<std::string, StateType>& states);
// Each local rank reads its shards. Precondition: CheckStates.
absl::Status LoadShards(const SafetensorsReader& file, StateSet set, Session* session);

// Both, for a session that holds all ranks.
absl::Status LoadStates(const SafetensorsReader& file, StateSet set, Session* session);

// Begins the file of the states of `set` among `states`; SaveShards fills it.
absl::StatusOr<std::unique_ptr<SafetensorsWriter>> BeginSave(const std::map<std::string, StateType>& states, StateSet set,
                                                             const std::map<std::string, std::string>& metadata,
                                                             const std::string& path);
// Writes what local ranks own; the elements written, by name, are for SafetensorsWriter::NotePart.
absl::StatusOr<std::map<std::string, int64_t>> SaveShards(const Session& session, StateSet set,
                                                          const std::string& temporary_path);

// Every weight of the local ranks of `to`, from the same rank of `from`, which holds the same shard.
absl::Status CopyWeights(const Session& from, Session* to);

}  // namespace weir
