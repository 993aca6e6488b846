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
absl::Status CheckStates(const SafetensorsReader& file, StateSet set,
                         const std::map<std::string, StateType>& states);
// Each local rank reads its shards. Precondition: CheckStates.
absl::Status LoadShards(const SafetensorsReader& file, StateSet set, Session* session);

// Both, for a session that holds all ranks.
absl::Status LoadStates(const SafetensorsReader& file, StateSet set, Session* session);

// Begins the file of the states of `set` among `states`; SaveShards fills it.
absl::StatusOr<std::unique_ptr<SafetensorsWriter>> BeginSave(
    const std::map<std::string, StateType>& states, StateSet set,
    const std::map<std::string, std::string>& metadata, const std::string& path);
// The part of a state that the ranks of one process wrote.
struct SavedPart {
  int64_t elements = 0;   // for SafetensorsWriter::NotePart
  std::string nonfinite;  // what of them is NaN or infinite, for people; empty: nothing
};
// Writes what local ranks own into the file that will be at `path`; by name.
absl::StatusOr<std::map<std::string, SavedPart>> SaveShards(const Session& session, StateSet set,
                                                            const std::string& temporary_path,
                                                            const std::string& path);

enum class Nonfinite : uint8_t {
  kRefuse,  // a file with NaN or infinity in it is not made
  kKeep,
};
struct SaveOrder {
  StateSet set = StateSet::kWeights;
  std::map<std::string, std::string> metadata;
  std::string path;
  Nonfinite nonfinite = Nonfinite::kRefuse;
};
// Tells the writer what was written of all parts. kOutOfRange (W0963) names the first state that is
// not finite, if the order refuses such.
absl::Status NoteParts(const std::map<std::string, SavedPart>& parts, const SaveOrder& order,
                       SafetensorsWriter* writer);

// Every weight of the local ranks of `to`, from the same rank of `from`, which holds the same
// shard.
absl::Status CopyWeights(const Session& from, Session* to);

}  // namespace weir
