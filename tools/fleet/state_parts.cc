#include "tools/fleet/state_parts.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/rect.h"

namespace weir::fleet {

absl::StatusOr<std::optional<std::string>> StateParts::Add(RankId rank, const std::string& name,
                                                           int64_t begin, const std::string& bytes,
                                                           int64_t whole) {
  const auto part = parts_.try_emplace({rank, name}).first;
  std::string& state = part->second;
  const int64_t have = static_cast<int64_t>(state.size());
  const int64_t more = static_cast<int64_t>(bytes.size());
  if (begin != have || more > whole - have) {
    return absl::InternalError(
        absl::StrCat("bytes of the state ", name, " at ", begin, " instead of at ", have));
  }
  state += bytes;
  if (have + more < whole) return std::nullopt;
  std::optional<std::string> done = std::move(state);
  parts_.erase(part);
  return done;
}

absl::StatusOr<std::optional<std::string>> StateParts::AddPart(RankId rank, const std::string& name,
                                                               const TensorSlice& part,
                                                               const TensorSlice& shard,
                                                               absl::string_view bytes) {
  if (!Covers(shard, part) || static_cast<int64_t>(bytes.size()) != part.bytes()) {
    return absl::InternalError(absl::StrCat("the state ", name, " of rank ", rank, ", ",
                                            ToText(shard), ", has no part ", ToText(part), " of ",
                                            bytes.size(), " bytes"));
  }
  const auto found = shards_.try_emplace({rank, name}).first;
  Shard& whole = found->second;
  whole.bytes.resize(static_cast<size_t>(shard.bytes()));
  CopyPart(part, part, bytes.data(), shard, whole.bytes.data());
  whole.filled += part.bytes();
  if (whole.filled < shard.bytes()) return std::nullopt;
  std::optional<std::string> done = std::move(whole.bytes);
  shards_.erase(found);
  return done;
}

}  // namespace weir::fleet
