#include "tools/checkpoint/transition.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::checkpoint {
namespace {

constexpr char kAsWeights[] =
    "--init, which starts a new run from its weights, or another checkpoint of the run";

absl::Status CheckCursor(const store::CheckpointShards& from, const TransitionOptions& options) {
  const store::CheckpointFacts& facts = from.index().facts;
  const std::string where = from.folder() + ", data cursor";
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
                  store::AnotherCheckpoint(from.folder())});
}

absl::Status CheckKeys(const store::CheckpointShards& from, const TransitionOptions& options) {
  const store::CheckpointFacts& facts = from.index().facts;
  std::set<std::string> names;
  for (const store::RandomKey& key : facts.keys) {
    const std::string where = absl::StrCat(from.folder(), ", random key ", key.name);
    if (!names.insert(key.name).second)
      return Damaged({"W0719", where, "each key once", "the key twice",
                      store::AnotherCheckpoint(from.folder())});
    if (key.seal == store::KeySeal(key)) continue;
    return Damaged({"W0719", where, "the key that the run wrote, under its seal",
                    absl::StrCat(key.key,
                                 ", under another seal: it was changed, or exchanged with "
                                 "another key"),
                    store::AnotherCheckpoint(from.folder())});
  }
  if (names.empty() && options.purpose == TransitionOptions::Purpose::kResume) {
    return Rejected({"W0719", from.folder() + ", random keys",
                     "the keys from which the run draws random numbers", "none", kAsWeights});
  }
  return absl::OkStatus();
}

absl::Status CheckState(const store::CheckpointShards& from, const std::string& name,
                        const ExpectedState& state) {
  const auto found = from.index().tensors.find(name);
  const std::string where = absl::StrCat(from.folder(), ", tensor ", name);
  const std::string expected =
      absl::StrCat(store::OwnerText(state.owner), " of ", state.dtype, ToText(state.shape));
  if (found == from.index().tensors.end()) {
    return Rejected({"W0716", where, expected, "none",
                     "the job that wrote the checkpoint, or `weir checkpoint edit --add`"});
  }
  const store::TensorFacts& tensor = found->second;
  if (tensor.dtype == state.dtype && tensor.shape == state.shape && tensor.owner == state.owner)
    return absl::OkStatus();
  return Rejected(
      {"W0716", where, expected,
       absl::StrCat(store::OwnerText(tensor.owner), " of ", tensor.dtype, ToText(tensor.shape)),
       tensor.shape == state.shape
           ? absl::StrCat("`weir checkpoint edit --cast ", name, "=", state.dtype,
                          "` if the other precision is meant, or another checkpoint of the run")
           : "the job that wrote the checkpoint"});
}

}  // namespace

absl::Status CheckTransition(const store::CheckpointShards& from,
                             const TransitionOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckCursor(from, options));
  WEIR_RETURN_IF_ERROR(CheckKeys(from, options));
  if (options.states != nullptr) {
    for (const auto& [name, state] : *options.states)
      WEIR_RETURN_IF_ERROR(CheckState(from, name, state));
    for (const auto& [name, tensor] : from.index().tensors) {
      if (options.states->count(name) > 0) continue;
      return Rejected({"W0716", absl::StrCat(from.folder(), ", tensor ", name),
                       "states of the job only",
                       absl::StrCat(store::OwnerText(tensor.owner), " of ", tensor.dtype,
                                    ToText(tensor.shape), ", which the job does not have"),
                       absl::StrCat("the job that wrote the checkpoint, or `weir checkpoint edit "
                                    "--drop ",
                                    name, "`")});
    }
  }
  if (options.depth == TransitionOptions::Depth::kIndex) return absl::OkStatus();
  for (size_t i = 0; i < from.index().files.size(); ++i) WEIR_RETURN_IF_ERROR(from.CheckFile(i));
  for (const auto& [name, tensor] : from.index().tensors)
    WEIR_RETURN_IF_ERROR(from.CheckContent(name));
  return absl::OkStatus();
}

bool ContentsAreHere(const store::CheckpointShards& from, int64_t bytes_max) {
  int64_t bytes = 0;
  for (const store::ShardFileRecord& file : from.index().files) {
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::path(from.folder()) / file.name, error))
      return false;
    if (file.bytes > bytes_max - bytes) return false;
    bytes += file.bytes;
  }
  return true;
}

}  // namespace weir::checkpoint
