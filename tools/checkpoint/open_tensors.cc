#include "tools/checkpoint/open_tensors.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_metadata.h"
#include "tools/checkpoint/transition.h"
#include "tools/weights/find_weights.h"

namespace weir::checkpoint {
namespace {

store::StateOwner OwnerByName(const std::string& name) {
  if (!absl::StrContains(name, '/')) return store::StateOwner::kWeight;
  return absl::StrContains(name, "/delayed_gradient") ? store::StateOwner::kDelayedGradient
                                                      : store::StateOwner::kOptimizerSlot;
}

}  // namespace

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
  if (const store::CheckpointShards* const shards = opened.reader->shards(); shards != nullptr) {
    opened.facts = shards->index().facts;
    opened.tensors = shards->index().tensors;
    return opened;
  }
  opened.facts = store::FactsOf(opened.reader->metadata());
  for (const auto& [name, tensor] : opened.reader->tensors())
    opened.tensors[name] = {tensor.dtype, tensor.shape, OwnerByName(name)};
  return opened;
}

absl::StatusOr<OpenTensors> OpenSound(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(OpenTensors opened, Open(path));
  if (opened.reader->shards() == nullptr) {
    WEIR_RETURN_IF_ERROR(opened.reader->CheckSums().status());
    return opened;
  }
  TransitionOptions options;
  options.purpose = TransitionOptions::Purpose::kKeep;
  options.depth = TransitionOptions::Depth::kContents;
  WEIR_RETURN_IF_ERROR(CheckTransition(*opened.reader->shards(), options));
  return opened;
}

}  // namespace weir::checkpoint
