// The states of a session as whole tensors with names, whatever their layout: gathered
// from the ranks that own shards, scattered to all ranks that hold one, saved to and
// loaded from safetensors. Moving weights between two sessions with different layouts goes
// through here.
//
// Weights have plain names ("layers.3.wq"); what the optimiser keeps is named after its
// weight ("layers.3.wq/adam_m"). One whole tensor is in memory at a time.
// Thread rule: between runs of the session, one thread.
#pragma once

#include <map>
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

struct StateType {
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
};

// The states of `set` over all ranks of the session, by name.
std::map<std::string, StateType> StatesOf(const Session& session, StateSet set);

// The whole tensor, row-major. kInternal if the owners' shards do not cover it exactly once.
absl::StatusOr<std::string> GatherState(const Session& session, const std::string& name);

// Writes to `path`, atomically. `metadata` goes into the file.
absl::Status SaveStates(const Session& session, StateSet set, const std::map<std::string, std::string>& metadata,
                        const std::string& path);

// Reads every state of `set`, each rank its shard. kInvalidArgument, before anything is
// changed, if the file lacks a state, has a shape that differs or, but for optimiser
// states while loading weights, has a tensor that the model does not.
absl::Status LoadStates(const SafetensorsReader& file, StateSet set, Session* session);

// Every weight of `from` into `to`, which must have the same weights.
absl::Status CopyWeights(const Session& from, Session* to);

}  // namespace weir
