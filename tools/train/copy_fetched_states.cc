#include "tools/train/copy_fetched_states.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

// Copies the elements that both slices have. Both are row-major.
void CopyOverlap(const TensorSlice& from, const char* source, const TensorSlice& to, char* target) {
  const size_t rank = to.shape.size();
  Shape begin(rank), end(rank);
  for (size_t d = 0; d < rank; ++d) {
    begin[d] = std::max(from.offset[d], to.offset[d]);
    end[d] = std::min(from.offset[d] + from.shape[d], to.offset[d] + to.shape[d]);
    if (begin[d] >= end[d]) return;
  }
  const auto place = [&](const TensorSlice& slice, const Shape& at) {
    int64_t index = 0;
    for (size_t d = 0; d < rank; ++d) index = index * slice.shape[d] + at[d] - slice.offset[d];
    return index * SizeOf(slice.dtype);
  };
  const int64_t bytes = (rank == 0 ? 1 : end[rank - 1] - begin[rank - 1]) * SizeOf(to.dtype);
  Shape at = begin;
  while (true) {
    memcpy(target + place(to, at), source + place(from, at), static_cast<size_t>(bytes));
    size_t d = rank < 2 ? 0 : rank - 1;
    while (d > 0 && ++at[d - 1] == end[d - 1]) {
      at[d - 1] = begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

absl::Status CopyState(const actors::Session& from, const actors::PlanState& to, char* target) {
  bool found = false;
  for (const RankId rank : from.local_ranks()) {
    for (const actors::PlanState& state : from.plan(rank).states) {
      if (state.name != to.name || state.slice.dtype != to.slice.dtype ||
          state.slice.global_shape != to.slice.global_shape) {
        continue;
      }
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, from.ReadState(rank, state.name));
      CopyOverlap(state.slice, memory.data(), to.slice, target);
      found = true;
    }
  }
  if (found) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("no rank of the other plan has state ", to.name));
}

}  // namespace

absl::Status CopyFetchedStates(const actors::Session& from, const std::string& except,
                               actors::Session* to) {
  for (const RankId rank : to->local_ranks()) {
    for (const actors::PlanState& state : to->plan(rank).states) {
      if (state.state_class != actors::StateClass::kFetched || state.name == except) continue;
      WEIR_RETURN_IF_ERROR(to->FillState(rank, state.name,
                                         [&](char* host) { return CopyState(from, state, host); }));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::train
