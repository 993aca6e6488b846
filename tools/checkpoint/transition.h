// The transition gate: the checks that a checkpoint passes before a job continues from it, and
// after a command has rewritten it. The gate is the same for a folder, a file and an index of
// several files, with the codes of each form.
//
//   what must hold                                           folder           file or index
//   ---------------------------------------------------------------------------------------
//   one owner of each element, within the tensor's shape     W0714   opening  W0042 opening
//   files and index of one step                              W0717   opening  W0717 opening
//   files and index of one run                               W0967   opening  W0967 opening
//   files of an index have one cursor and the same keys                W0718, W0719 opening
//   the data cursor is there, and is the one written         W0718            W0718
//   the keys of random numbers are there, likewise           W0719            W0719
//   each state has the element type, shape and owner of the
//   job, and no other state is there                         W0716            W0716
//   each tensor has the values that the run wrote            W0713, W0715     W0960
//
// A form is not checked for facts that it does not record: a file names no owners, so the states of
// the job decide what each tensor is for. One checksum over all values of a tensor in their order
// takes the place of the checksums and content sums of shards. Every failure names the tensor and
// says what to do. Thread rule: pure functions over an immutable reader.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/safetensors.h"

namespace weir::checkpoint {

// The values of a folder with more bytes are not read before a run. The ranks check what they read.
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
  // kContents: reads all values, which must be on this host. kContentsIfHere: reads them unless
  // some are on other hosts, or the folder has more than kContentsReadMax bytes.
  enum class Depth : uint8_t { kIndex, kContents, kContentsIfHere } depth = Depth::kIndex;
};

// The gate says what it knows about the values of a checkpoint that has passed.
enum class Contents : uint8_t { kChecked, kNotRead, kHaveNoChecksums };

// Precondition: SafetensorsReader::Open has checked owners and steps. kDataLoss or
// kInvalidArgument: a check of the table fails. kNotFound (W0712): a file is on another host.
absl::StatusOr<Contents> CheckTransition(const store::SafetensorsReader& from,
                                         const TransitionOptions& options);

// A checkpoint in any form records these facts and tensors.
struct Recorded {
  store::CheckpointFacts facts;
  // In a file, the owners follow from the names: "wq/adam_m" is a slot of wq. Content sums are
  // those of the index of a folder, or 0.
  std::map<std::string, store::TensorFacts> tensors;
};
Recorded RecordedIn(const store::SafetensorsReader& from);
// Returns the facts alone. A file of strangers may have many tensors, and Recorded copies them.
store::CheckpointFacts FactsIn(const store::SafetensorsReader& from);

}  // namespace weir::checkpoint
