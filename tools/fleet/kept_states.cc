#include "tools/fleet/kept_states.h"

#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"

namespace weir::fleet {

bool IsKept(actors::StateClass state_class) { return state_class != actors::StateClass::kFetched; }

absl::Status KeptStates::Take(const actors::Session& session) {
  step_ = -1;
  ranges_.clear();
  bytes_ = 0;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (!IsKept(state.state_class)) continue;
      ranges_[{rank, state.name}] = {bytes_, state.slice.bytes()};
      bytes_ += state.slice.bytes();
    }
  }
  if (bytes_ > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = std::unique_ptr<char[]>(new (std::nothrow) char[static_cast<size_t>(bytes_)]);
    if (memory_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory to keep the states, ", BytesText(static_cast<double>(bytes_))));
    }
    capacity_ = bytes_;
  }
  for (const auto& [key, range] : ranges_) {
    WEIR_ASSIGN_OR_RETURN(const device::HostView held, session.ReadState(key.first, key.second));
    std::memcpy(memory_.get() + range.begin, held.data(), static_cast<size_t>(range.bytes));
  }
  step_ = session.steps_done();
  return absl::OkStatus();
}

absl::Status KeptStates::PutInto(actors::Session* session) const {
  for (const auto& [key, range] : ranges_) {
    WEIR_RETURN_IF_ERROR(session->WriteState(
        key.first, key.second,
        absl::MakeConstSpan(memory_.get() + range.begin, static_cast<size_t>(range.bytes))));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> KeptStates::Read(RankId rank, const std::string& name,
                                                   int64_t begin, int64_t bytes) const {
  const auto found = ranges_.find({rank, name});
  if (found == ranges_.end() || begin < 0 || bytes < 0 || begin > found->second.bytes ||
      bytes > found->second.bytes - begin) {
    return absl::NotFoundError(
        absl::StrCat("rank ", rank, " keeps no such bytes of the state ", name));
  }
  return absl::string_view(memory_.get() + found->second.begin + begin, static_cast<size_t>(bytes));
}

absl::StatusOr<std::vector<absl::string_view>> KeptStates::Pieces(
    const std::vector<GuardedShard>& shards) const {
  std::vector<absl::string_view> pieces;
  for (const GuardedShard& shard : shards) {
    WEIR_ASSIGN_OR_RETURN(const absl::string_view bytes,
                          Read(shard.rank, shard.name, 0, shard.bytes));
    if (!pieces.empty() && pieces.back().data() + pieces.back().size() == bytes.data()) {
      pieces.back() = absl::string_view(pieces.back().data(), pieces.back().size() + bytes.size());
    } else {
      pieces.push_back(bytes);
    }
  }
  return pieces;
}

}  // namespace weir::fleet
