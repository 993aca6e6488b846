#include "tools/fleet/state_parts.h"

#include "absl/strings/str_cat.h"

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

}  // namespace weir::fleet
