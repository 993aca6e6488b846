// The states of a session under their names, whatever their layout. Each rank writes the shards
// that it owns into one file of whole tensors (safetensors), and reads its shards from such a file.
// Weights therefore move between layouts, and between processes, through the file.
//
// The plan says of each state what the state is for; a name is a label. Names in a file follow a
// rule: weights have plain names ("layers.3.wq"), and what the optimiser keeps for a weight is
// named after the weight ("layers.3.wq/adam_m"). Thread rule: between runs of the session, one
// thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "runtime/store/safetensors.h"
#include "tools/train/on_nonfinite.h"
#include "tools/weights/averages.h"
#include "tools/weights/find_weights.h"
#include "tools/weights/mapped_weights.h"

namespace weir::train {

enum class StateSet : uint8_t {
  kWeights,
  kAll,  // weights and optimiser states; not fetched results
};

bool BelongsTo(actors::StateClass state_class, StateSet set);

struct StateType {
  DType dtype = DType::kF32;
  Shape shape;  // of the whole tensor
  actors::StateClass state_class = actors::StateClass::kWeight;
};

// Returns the states of `set` over the local ranks of the session, by name.
std::map<std::string, StateType> StatesOf(const actors::Session& session, StateSet set);

// Compares a checkpoint with the states of all ranks of a job: takes it through the transition gate
// (tools/checkpoint/transition.h) without its contents. kInvalidArgument (W0071): the checkpoint
// lacks a state or has a tensor that is no state. Other errors: those of the gate.
absl::Status CheckCheckpoint(const store::SafetensorsReader& file,
                             const std::map<std::string, StateType>& states);
// Returns the types of the weights among `states`.
weights::WeightTypes WeightTypesOf(const std::map<std::string, StateType>& states);

// A file to load, and how its tensors become states.
struct LoadOrder {
  std::string path;
  StateSet set = StateSet::kWeights;
  std::shared_ptr<const weights::WeightMap> map = {};  // null: the names are those of the states
  std::string constants = {};  // the file of the map's constants; empty: none
  weights::Values values = weights::Values::kWeights;
};
// Opens the files of an order. Errors: those of weights::OpenValues.
absl::StatusOr<weights::MappedWeights> OpenWeights(const LoadOrder& order);
// Each local rank reads its shards, and no other bytes. Weights that the map calls fresh stay.
// Precondition: CheckCheckpoint or MapWeights.
absl::Status LoadShards(const weights::MappedWeights& from, StateSet set, actors::Session* session);

// Finds the map of a file of weights and loads them, for a session that holds all ranks. The file
// also has the weights `unused`, which no state of the session is. Errors: those of MapWeights.
absl::Status LoadWeights(std::shared_ptr<const store::SafetensorsReader> file,
                         const weights::MapPlaces& places, actors::Session* session,
                         const weights::WeightTypes& unused = {});

// Begins the file for the states of `set` among `states`. SaveShards fills the file.
absl::StatusOr<std::unique_ptr<store::SafetensorsWriter>> BeginSave(
    const std::map<std::string, StateType>& states, StateSet set,
    const std::map<std::string, std::string>& metadata, const std::string& path);
// The part of a state that the ranks of one process wrote.
struct SavedPart {
  int64_t elements = 0;   // for SafetensorsWriter::NotePart
  std::string nonfinite;  // its elements that are NaN or infinite, for people; empty: none
};
// Counts the values of `slice`, which `rank` holds at `data`, and notes the first that are not
// finite.
void AddValues(RankId rank, const TensorSlice& slice, const void* data, SavedPart* part);
// Writes the shards that local ranks own into the file whose final name is `path`. Returns the
// parts by name.
absl::StatusOr<std::map<std::string, SavedPart>> SaveShards(const actors::Session& session,
                                                            StateSet set,
                                                            const std::string& temporary_path,
                                                            const std::string& path);

enum class Nonfinite : uint8_t {
  kRefuse,  // refuses to make a file with NaN or infinity in it
  kKeep,
};
// Returns what a run with this action does about its files.
Nonfinite NonfiniteInFiles(OnNonfinite on_nonfinite);
// Returns the error for a state that is not finite in the file or folder at `path` (kOutOfRange,
// W0963).
absl::Status NotFinite(const std::string& path, const std::string& state, const std::string& found);
struct SaveOrder {
  StateSet set = StateSet::kWeights;
  std::map<std::string, std::string> metadata;
  std::string path;
  Nonfinite nonfinite = Nonfinite::kRefuse;
};
// Tells the writer which parts were written. kOutOfRange (W0963): the order refuses values that are
// not finite; the error names the first such state.
absl::Status NoteParts(const std::map<std::string, SavedPart>& parts, const SaveOrder& order,
                       store::SafetensorsWriter* writer);

// Copies every weight of the local ranks of `to` that `to` does not share with `from` from the same
// rank of `from`, which holds the same shard. kAverages: copies the average of a weight that has
// one.
absl::Status CopyWeights(const actors::Session& from, weights::Values values, actors::Session* to);

}  // namespace weir::train
