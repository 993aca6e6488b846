// The transition gate: the checks that a checkpoint passes before a job continues from it, and
// after a command has rewritten it.
//
//   one owner of each element, within the tensor's shape     W0714   opening the folder
//   files and index of one step                              W0717   opening the folder
//   files and index of one run                               W0967   opening the folder, a file
//   the data cursor is there, and is the one written         W0718
//   the keys of random numbers are there, likewise           W0719
//   each state has the element type and owner of the job     W0716
//   each tensor has the values that the run wrote            W0713, W0715   Depth::kContents
//
// Every failure names the tensor and says what to do. Thread rule: pure functions over an immutable
// reader.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "runtime/store/checkpoint_shards.h"

namespace weir::checkpoint {

// A checkpoint with more bytes is not read as a whole before a run. The ranks check what they read.
inline constexpr int64_t kContentsReadMax = int64_t{4} << 30;

// A state as the job wants it.
struct ExpectedState {
  std::string dtype;  // as in safetensors
  Shape shape;
  store::StateOwner owner = store::StateOwner::kWeight;
};

struct TransitionOptions {
  // The states of the job; null: those of the checkpoint, whatever they are.
  const std::map<std::string, ExpectedState>* states = nullptr;
  // kResume: a run continues, so the cursor and the keys must be there. kKeep: what is there must
  // be as it was written.
  enum class Purpose : uint8_t { kResume, kKeep } purpose = Purpose::kResume;
  // kContents: reads all shards, which must be in the folder.
  enum class Depth : uint8_t { kIndex, kContents } depth = Depth::kIndex;
};

// Precondition: CheckpointShards::Open has checked owners and steps. kDataLoss or kInvalidArgument:
// a check of the table fails. kNotFound (W0712): a file is on another host.
absl::Status CheckTransition(const store::CheckpointShards& from, const TransitionOptions& options);

// Returns whether all shards are in the folder, and are at most `bytes_max` bytes.
bool ContentsAreHere(const store::CheckpointShards& from, int64_t bytes_max);

}  // namespace weir::checkpoint
