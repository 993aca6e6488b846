// Opens the tensors of a checkpoint folder, a file of safetensors or an index of such files, with
// what each tensor is for. Thread rule: immutable, any thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/dtype.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/safetensors.h"
#include "tools/checkpoint/transition.h"

namespace weir::checkpoint {

struct OpenTensors {
  std::shared_ptr<const store::SafetensorsReader> reader;
  // The checkpoint records these facts and tensors (RecordedIn of transition.h).
  store::CheckpointFacts facts;
  std::map<std::string, store::TensorFacts> tensors;
};

// Opens what a path of weights names (tools/weights/find_weights.h). kNotFound (W0711): a folder
// without any. Other errors: those of SafetensorsReader::Open. Checks no values.
absl::StatusOr<OpenTensors> Open(const std::string& path);
// Takes a checkpoint through the transition gate with all its values, as what is written again
// under new checksums must be what a run wrote. Returns what the values were checked against.
// Errors: those of CheckTransition.
absl::StatusOr<Contents> CheckSound(const OpenTensors& opened);
// Opens and checks.
absl::StatusOr<OpenTensors> OpenSound(const std::string& path);

}  // namespace weir::checkpoint
