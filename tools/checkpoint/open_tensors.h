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

namespace weir::checkpoint {

struct OpenTensors {
  std::shared_ptr<const store::SafetensorsReader> reader;
  // The facts of the folder. Of a file or an index: what the metadata tells, without seals.
  store::CheckpointFacts facts;
  // In a file, the owners follow from the names: "wq/adam_m" is a slot of wq. Content sums are
  // those of the index, or 0.
  std::map<std::string, store::TensorFacts> tensors;
};

// Opens what a path of weights names (tools/weights/find_weights.h). kNotFound (W0711): a folder
// without any. Other errors: those of SafetensorsReader::Open. Checks no values.
absl::StatusOr<OpenTensors> Open(const std::string& path);
// Opens, and checks all values: the transition gate of a folder, or the checksums of a file.
absl::StatusOr<OpenTensors> OpenSound(const std::string& path);

}  // namespace weir::checkpoint
