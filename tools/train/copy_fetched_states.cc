#include "tools/train/copy_fetched_states.h"

#include <string.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

// A box of a tensor, from `begin` to before `end` along each dimension.
using Box = std::pair<Shape, Shape>;

// Returns the elements that both slices have; nullopt if there are none.
std::optional<Box> OverlapOf(const TensorSlice& a, const TensorSlice& b) {
  const size_t rank = a.shape.size();
  Box box{Shape(rank), Shape(rank)};
  auto& [begin, end] = box;
  for (size_t d = 0; d < rank; ++d) {
    begin[d] = std::max(a.offset[d], b.offset[d]);
    end[d] = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin[d] >= end[d]) return std::nullopt;
  }
  return box;
}

// Copies the elements that both slices have. Both are row-major.
void CopyOverlap(const TensorSlice& from, const char* source, const TensorSlice& to, char* target) {
  const std::optional<Box> overlap = OverlapOf(from, to);
  if (!overlap.has_value()) return;
  const auto& [begin, end] = *overlap;
  const size_t rank = to.shape.size();
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

bool IsSameTensor(const actors::PlanState& a, const actors::PlanState& b) {
  return a.name == b.name && a.slice.dtype == b.slice.dtype &&
         a.slice.global_shape == b.slice.global_shape;
}

// Returns whether the local ranks of `from` hold all elements of `to`. Shards of a tensor that are
// not equal have no element in common.
bool HoldsState(const actors::Session& from, const actors::PlanState& to) {
  std::set<Box> overlaps;
  for (const RankId rank : from.local_ranks()) {
    for (const actors::PlanState& state : from.plan(rank).states) {
      if (!IsSameTensor(state, to)) continue;
      if (std::optional<Box> overlap = OverlapOf(state.slice, to.slice); overlap.has_value())
        overlaps.insert(*std::move(overlap));
    }
  }
  int64_t held = 0;
  for (const auto& [begin, end] : overlaps) {
    int64_t elements = 1;
    for (size_t d = 0; d < begin.size(); ++d) elements *= end[d] - begin[d];
    held += elements;
  }
  return held == to.slice.num_elements();
}

absl::Status CopyState(const actors::Session& from, const actors::PlanState& to, char* target) {
  bool found = false;
  for (const RankId rank : from.local_ranks()) {
    for (const actors::PlanState& state : from.plan(rank).states) {
      if (!IsSameTensor(state, to)) continue;
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, from.ReadState(rank, state.name));
      CopyOverlap(state.slice, memory.data(), to.slice, target);
      found = true;
    }
  }
  if (found) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("no rank of the other plan has state ", to.name));
}

// Calls visit(rank, state) for each fetched state of the local ranks but `except`.
template <typename F>
absl::Status ForEachFetched(const actors::Session& session, const std::string& except, F&& visit) {
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (state.state_class == actors::StateClass::kFetched && state.name != except)
        WEIR_RETURN_IF_ERROR(visit(rank, state));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool HoldsFetchedStates(const actors::Session& from, const std::string& except,
                        const actors::Session& to) {
  return ForEachFetched(to, except,
                        [&](RankId, const actors::PlanState& state) {
                          return HoldsState(from, state) ? absl::OkStatus()
                                                         : absl::NotFoundError(state.name);
                        })
      .ok();
}

absl::Status CopyFetchedStates(const actors::Session& from, const std::string& except,
                               actors::Session* to) {
  return ForEachFetched(*to, except, [&](RankId rank, const actors::PlanState& state) {
    return to->FillState(rank, state.name,
                         [&](char* host) { return CopyState(from, state, host); });
  });
}

}  // namespace weir::train
