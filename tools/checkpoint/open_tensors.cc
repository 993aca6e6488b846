#include "tools/checkpoint/open_tensors.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/checkpoint/transition.h"
#include "tools/weights/find_weights.h"

namespace weir::checkpoint {
namespace {

std::string ValueOf(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? "" : it->second;
}

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
  if (!named.ok() && std::filesystem::is_directory(path, error))
    return store::ResolveCheckpoint(path).status();
  WEIR_RETURN_IF_ERROR(named.status());
  WEIR_ASSIGN_OR_RETURN(opened.reader, store::SafetensorsReader::Open(*named));
  if (const store::CheckpointShards* const shards = opened.reader->shards(); shards != nullptr) {
    opened.facts = shards->index().facts;
    opened.tensors = shards->index().tensors;
    return opened;
  }
  const std::map<std::string, std::string>& metadata = opened.reader->metadata();
  opened.facts.job = ValueOf(metadata, "job");
  opened.facts.schedule = ValueOf(metadata, "schedule");
  int64_t step = 0;
  if (absl::SimpleAtoi(ValueOf(metadata, "step"), &step) ||
      absl::SimpleAtoi(ValueOf(metadata, "trained_steps"), &step))
    opened.facts.step = step < 0 ? 0 : step;
  opened.facts.optimizer_step = opened.facts.step;
  if (absl::SimpleAtoi(ValueOf(metadata, "optimizer_step"), &step))
    opened.facts.optimizer_step = step;
  int64_t samples = 0;
  uint64_t seed = 0;
  if (metadata.count("step") > 0 && absl::SimpleAtoi(ValueOf(metadata, "seed"), &seed) &&
      absl::SimpleAtoi(ValueOf(metadata, "samples"), &samples) && samples >= 0) {
    opened.facts.cursor = store::DataCursor{samples, 0, seed, ""};
    opened.facts.keys = {{"training", seed}};
  }
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
