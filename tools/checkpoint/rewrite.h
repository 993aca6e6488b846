// Writes tensors of opened checkpoints into a new checkpoint folder: what `import` and `edit` do.
// Each tensor is read piece by piece and checked on the way; the new checkpoint is committed as one
// of a run is, read back, and checked by the transition gate.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/dtype.h"
#include "tools/checkpoint/open_tensors.h"

namespace weir::checkpoint {

// A file of a rewritten checkpoint gets no further tensor once it has this many bytes.
inline constexpr int64_t kRewrittenFileBytes = int64_t{4} << 30;

// A tensor of the new checkpoint.
struct NewTensor {
  const store::SafetensorsReader* from = nullptr;
  std::string source;  // its name there
  DType dtype = DType::kF32;
  Shape shape;
  store::StateOwner owner = store::StateOwner::kWeight;
};

// What becomes of a checkpoint of the same step that is there already.
enum class Existing : uint8_t { kRefuse, kReplace };
// Checks that a checkpoint of `step` may be written into `directory`. kInvalidArgument (W0724): one
// is there, and `existing` refuses.
absl::Status CheckPlace(const std::string& directory, int64_t step, Existing existing);
// Writes a checkpoint of step facts.step into the folder `directory`, as its `latest`. Returns the
// path of the checkpoint. Errors: those of CheckPlace and of reading, CannotWrite (pending_file.h),
// kNotFound (W0741: a run writes checkpoints into the folder), or those of the gate.
absl::StatusOr<std::string> WriteFolder(const std::string& directory,
                                        const store::CheckpointFacts& facts,
                                        const std::map<std::string, NewTensor>& tensors,
                                        Existing existing);

// Returns the tensors of an opened checkpoint, each under its name and in the type that holds it
// without loss. kInvalidArgument (W0723): a tensor has a type that Weir does not hold.
absl::StatusOr<std::map<std::string, NewTensor>> AllOf(const OpenTensors& opened);

// Edits are the changes of `weir checkpoint edit`, in the order in which they are made.
struct Edits {
  std::vector<std::string> drop;    // patterns of names (tools/weights/name_pattern.h)
  std::vector<std::string> rename;  // "PATTERN=NAME"
  std::vector<std::string> cast;    // "PATTERN=F32", "=BF16" or "=F16"
};
// Applies the edits to the names. A pattern that fits a weight also takes its optimiser states
// along ("wq/adam_m" with "wq"). kInvalidArgument (W0722): a pattern is malformed or fits no
// tensor, or two tensors get one name.
absl::StatusOr<std::map<std::string, NewTensor>> Apply(const Edits& edits,
                                                       std::map<std::string, NewTensor> tensors,
                                                       const std::string& path);
// Adds the tensors of `from` that are not there yet. Returns their number.
absl::StatusOr<int64_t> AddMissing(const OpenTensors& from,
                                   std::map<std::string, NewTensor>* tensors);

}  // namespace weir::checkpoint
