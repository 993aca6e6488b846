#include "tools/train/state_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "sbp/layout.h"

namespace weir::train {
namespace {

// Below this size a shard is not worth an entry for each replica.
constexpr int64_t kSharedBytesMin = 64 << 10;
constexpr size_t kLargePage = 2 << 20;
constexpr int64_t kPage = 4 << 10;

// Returns the first axis of which a slice has more than one element; -1 if there is none.
int SplitAxis(const TensorSlice& slice) {
  for (size_t axis = 0; axis < slice.shape.size(); ++axis) {
    if (slice.shape[axis] > 1) return static_cast<int>(axis);
  }
  return -1;
}

}  // namespace

ReplicaPlace PlaceAmongReplicas(const sbp::Layout& layout, const sbp::Mesh& mesh,
                                const sbp::Coords& coords) {
  ReplicaPlace place;
  for (size_t axis = 0; axis < layout.size(); ++axis) {
    if (!layout[axis].is_broadcast()) continue;
    const int64_t size = mesh.size(static_cast<int>(axis));
    place.index = place.index * size + coords[axis];
    place.count *= size;
  }
  return place;
}

std::optional<TensorSlice> ShareOf(const std::string& name, const TensorSlice& slice,
                                   const ReplicaPlace& place) {
  if (place.count == 1) return slice;
  const int axis = SplitAxis(slice);
  if (axis < 0 || slice.bytes() < kSharedBytesMin) {
    const auto turn = static_cast<int64_t>(Crc32c(name.data(), name.size()));
    if (turn % place.count == place.index) return slice;
    return std::nullopt;
  }
  TensorSlice share = slice;
  const int64_t size = slice.shape[axis], begin = size * place.index / place.count;
  share.offset[axis] += begin;
  share.shape[axis] = size * (place.index + 1) / place.count - begin;
  if (share.shape[axis] == 0) return std::nullopt;
  return share;
}

absl::StatusOr<std::vector<StateCopy::Source>> StateCopy::FindSources(
    const actors::Session& session, const compiler::LogicalPlan& plan, StateSet set) {
  bytes_ = 0;
  std::vector<Source> sources;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (!BelongsTo(state.state_class, set)) continue;
      const sbp::Mesh& mesh = plan.places.mesh(plan.places.PlaceOf(rank));
      WEIR_ASSIGN_OR_RETURN(const sbp::Layout layout, sbp::ParseLayout(state.layout, mesh));
      const ReplicaPlace place = PlaceAmongReplicas(layout, mesh, plan.places.CoordsOf(rank));
      const std::optional<TensorSlice> share = ShareOf(state.name, state.slice, place);
      if (!share.has_value() || share->num_elements() == 0) continue;
      const int axis = SplitAxis(state.slice);
      const int64_t first = axis < 0 ? 0 : share->offset[axis] - state.slice.offset[axis];
      const int64_t position =
          axis < 0 ? 0 : first * (state.slice.bytes() / state.slice.shape[axis]);
      bytes_ += share->bytes();
      sources.push_back({{rank, state.name, *share, nullptr}, position});
    }
  }
  std::stable_sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    if (a.shard.rank != b.shard.rank) return a.shard.rank < b.shard.rank;
    return SizeOf(a.shard.slice.dtype) > SizeOf(b.shard.slice.dtype);
  });
  return sources;
}

absl::Status StateCopy::Allocate() {
  if (bytes_ <= capacity_) return absl::OkStatus();
  memory_.reset();
  capacity_ = 0;
  const size_t bytes = (static_cast<size_t>(bytes_) + kLargePage - 1) / kLargePage * kLargePage;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kLargePage, bytes)));
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a copy of the states, ",
                                                     BytesText(static_cast<double>(bytes_))));
  }
  // Large pages are touched in less time. A system without them ignores the advice.
  ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  capacity_ = bytes_;
  return absl::OkStatus();
}

absl::Status StateCopy::Reserve(const actors::Session& session, const compiler::LogicalPlan& plan,
                                StateSet set) {
  shards_.clear();
  WEIR_RETURN_IF_ERROR(FindSources(session, plan, set).status());
  return Allocate();
}

void StateCopy::Touch() {
  volatile char* const memory = memory_.get();
  for (int64_t at = 0; at < capacity_; at += kPage) memory[at] = 0;
}

absl::Status StateCopy::Take(const actors::Session& session, const compiler::LogicalPlan& plan,
                             StateSet set) {
  shards_.clear();
  WEIR_ASSIGN_OR_RETURN(std::vector<Source> sources, FindSources(session, plan, set));
  WEIR_RETURN_IF_ERROR(Allocate());
  char* next = memory_.get();
  for (Source& source : sources) {
    Shard& shard = source.shard;
    WEIR_ASSIGN_OR_RETURN(const device::HostView held, session.ReadState(shard.rank, shard.name));
    const auto size = static_cast<size_t>(shard.slice.bytes());
    std::memcpy(next, static_cast<const char*>(held.data()) + source.position, size);
    shard.data = next;
    next += size;
    shards_.push_back(std::move(shard));
  }
  return absl::OkStatus();
}

}  // namespace weir::train
