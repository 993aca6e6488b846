#include "tools/checkpoint/open_tensors.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/weights/find_weights.h"

namespace weir::checkpoint {
absl::StatusOr<OpenTensors> Open(const std::string& path) {
  OpenTensors opened;
  const absl::StatusOr<std::string> named = weights::WeightFileOf(path);
  // A folder without weights of any kind is taken for one of checkpoints.
  std::error_code error;
  const std::optional<Problem> problem = ProblemOf(named.status());
  if (problem.has_value() && problem->code == "W0049" && std::filesystem::is_directory(path, error))
    return store::ResolveCheckpoint(path).status();
  WEIR_RETURN_IF_ERROR(named.status());
  WEIR_ASSIGN_OR_RETURN(opened.reader, store::SafetensorsReader::Open(*named));
  Recorded recorded = RecordedIn(*opened.reader);
  opened.facts = std::move(recorded.facts);
  opened.tensors = std::move(recorded.tensors);
  return opened;
}

absl::StatusOr<Contents> CheckSound(const OpenTensors& opened) {
  TransitionOptions options;
  options.purpose = TransitionOptions::Purpose::kKeep;
  options.depth = TransitionOptions::Depth::kContents;
  return CheckTransition(*opened.reader, options);
}

absl::StatusOr<OpenTensors> OpenSound(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(OpenTensors opened, Open(path));
  WEIR_RETURN_IF_ERROR(CheckSound(opened).status());
  return opened;
}

}  // namespace weir::checkpoint
