#include "tools/checkpoint/transition.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/checkpoint_shards.h"

namespace weir::checkpoint {
namespace {

constexpr char kAsWeights[] =
    "--init, which starts a new run from its weights, or another checkpoint of the run";

// The gate looks at a checkpoint in any form as at an Examined.
struct Examined {
  const store::SafetensorsReader& reader;
  const store::CheckpointFacts facts;
  const std::string where;   // the folder, the file or the index
  const std::string advice;  // on damage
  bool has_owners() const { return reader.shards() != nullptr; }
};

Examined Examine(const store::SafetensorsReader& from) {
  const store::CheckpointShards* const shards = from.shards();
  if (shards == nullptr) {
    return {from, FactsIn(from), from.path(),
            "another checkpoint of the run, or another copy of this one"};
  }
  return {from, FactsIn(from), shards->folder(), store::AnotherCheckpoint(shards->folder())};
}

store::StateOwner OwnerByName(const std::string& name) {
  if (!absl::StrContains(name, '/')) return store::StateOwner::kWeight;
  return absl::StrContains(name, "/delayed_gradient") ? store::StateOwner::kDelayedGradient
                                                      : store::StateOwner::kOptimizerSlot;
}

absl::Status CheckCursor(const Examined& from, const TransitionOptions& options) {
  const store::CheckpointFacts& facts = from.facts;
  const std::string where = from.where + ", data cursor";
  if (!facts.cursor.has_value()) {
    if (options.purpose == TransitionOptions::Purpose::kKeep) return absl::OkStatus();
    return Rejected({"W0718", where, "where the run stands in its data", "none", kAsWeights});
  }
  const store::DataCursor& cursor = *facts.cursor;
  if (cursor.seal == store::CursorSeal(cursor, facts.step, facts.optimizer_step) &&
      cursor.samples >= 0 && cursor.samples_per_epoch >= 0)
    return absl::OkStatus();
  return Damaged({"W0718", where,
                  "the cursor and the step counters that the run wrote, under their seal",
                  absl::StrCat(cursor.samples, " samples at step ", facts.step, ", update ",
                               facts.optimizer_step, ", under another seal: one of them was reset"),
                  from.advice});
}

absl::Status CheckKeys(const Examined& from, const TransitionOptions& options) {
  const store::CheckpointFacts& facts = from.facts;
  std::set<std::string> names;
  for (const store::RandomKey& key : facts.keys) {
    const std::string where = absl::StrCat(from.where, ", random key ", key.name);
    if (!names.insert(key.name).second)
      return Damaged({"W0719", where, "each key once", "the key twice", from.advice});
    if (key.seal == store::KeySeal(key)) continue;
    return Damaged({"W0719", where, "the key that the run wrote, under its seal",
                    absl::StrCat(key.key,
                                 ", under another seal: it was changed, or exchanged with "
                                 "another key"),
                    from.advice});
  }
  if (names.empty() && options.purpose == TransitionOptions::Purpose::kResume) {
    return Rejected({"W0719", from.where + ", random keys",
                     "the keys from which the run draws random numbers", "none", kAsWeights});
  }
  return absl::OkStatus();
}

// Returns "optimizer slot of F32[2]", or "F32[2]" of a form that names no owners.
std::string StateText(const Examined& from, store::StateOwner owner, const std::string& dtype,
                      const Shape& shape) {
  return absl::StrCat(from.has_owners() ? absl::StrCat(store::OwnerText(owner), " of ") : "", dtype,
                      ToText(shape));
}

absl::Status CheckState(const Examined& from, const Recorded& recorded, const std::string& name,
                        const ExpectedState& state) {
  const auto found = recorded.tensors.find(name);
  const std::string where = absl::StrCat(from.where, ", tensor ", name);
  const std::string expected = StateText(from, state.owner, state.dtype, state.shape);
  if (found == recorded.tensors.end()) {
    return Rejected({"W0716", where, expected, "none",
                     "the job that wrote the checkpoint, or `weir checkpoint edit --add`"});
  }
  const store::TensorFacts& tensor = found->second;
  if (tensor.dtype == state.dtype && tensor.shape == state.shape &&
      (tensor.owner == state.owner || !from.has_owners()))
    return absl::OkStatus();
  return Rejected(
      {"W0716", where, expected, StateText(from, tensor.owner, tensor.dtype, tensor.shape),
       tensor.shape == state.shape
           ? absl::StrCat("`weir checkpoint edit --cast ", name, "=", state.dtype,
                          "` if the other precision is meant, or another checkpoint of the run")
           : "the job that wrote the checkpoint"});
}

absl::Status CheckStates(const Examined& from, const std::map<std::string, ExpectedState>& states) {
  const Recorded recorded = RecordedIn(from.reader);
  for (const auto& [name, state] : states)
    WEIR_RETURN_IF_ERROR(CheckState(from, recorded, name, state));
  for (const auto& [name, tensor] : recorded.tensors) {
    if (states.count(name) > 0) continue;
    return Rejected(
        {"W0716", absl::StrCat(from.where, ", tensor ", name), "states of the job only",
         absl::StrCat(StateText(from, tensor.owner, tensor.dtype, tensor.shape),
                      ", which the job does not have"),
         absl::StrCat("the job that wrote the checkpoint, or `weir checkpoint edit --drop ", name,
                      "`")});
  }
  return absl::OkStatus();
}

// Returns whether all shards are in the folder, and are few enough to read.
bool ContentsAreHere(const store::CheckpointShards& from) {
  int64_t bytes = 0;
  for (const store::ShardFileRecord& file : from.index().files) {
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::path(from.folder()) / file.name, error))
      return false;
    if (file.bytes > kContentsReadMax - bytes) return false;
    bytes += file.bytes;
  }
  return true;
}

// A file is read as a whole, however large it is, because nobody checks it later.
absl::StatusOr<Contents> CheckContents(const store::SafetensorsReader& from,
                                       TransitionOptions::Depth depth) {
  if (depth == TransitionOptions::Depth::kIndex) return Contents::kNotRead;
  const store::CheckpointShards* const shards = from.shards();
  if (depth == TransitionOptions::Depth::kContentsIfHere && shards != nullptr &&
      !ContentsAreHere(*shards))
    return Contents::kNotRead;
  WEIR_ASSIGN_OR_RETURN(const store::SafetensorsReader::Checked checked, from.CheckSums());
  if (checked == store::SafetensorsReader::Checked::kHasNoChecksums)
    return Contents::kHaveNoChecksums;
  if (shards == nullptr) return Contents::kChecked;
  for (const auto& [name, tensor] : shards->index().tensors)
    WEIR_RETURN_IF_ERROR(shards->CheckContent(name));
  return Contents::kChecked;
}

}  // namespace

store::CheckpointFacts FactsIn(const store::SafetensorsReader& from) {
  const store::CheckpointShards* const shards = from.shards();
  return shards != nullptr ? shards->index().facts : store::FactsOf(from.metadata());
}

Recorded RecordedIn(const store::SafetensorsReader& from) {
  if (const store::CheckpointShards* const shards = from.shards(); shards != nullptr)
    return {FactsIn(from), shards->index().tensors};
  Recorded recorded{FactsIn(from), {}};
  for (const auto& [name, tensor] : from.tensors())
    recorded.tensors[name] = {tensor.dtype, tensor.shape, OwnerByName(name)};
  return recorded;
}

absl::StatusOr<Contents> CheckTransition(const store::SafetensorsReader& reader,
                                         const TransitionOptions& options) {
  const Examined from = Examine(reader);
  WEIR_RETURN_IF_ERROR(CheckCursor(from, options));
  WEIR_RETURN_IF_ERROR(CheckKeys(from, options));
  if (options.states != nullptr) WEIR_RETURN_IF_ERROR(CheckStates(from, *options.states));
  return CheckContents(reader, options.depth);
}

}  // namespace weir::checkpoint
