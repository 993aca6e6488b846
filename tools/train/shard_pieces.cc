#include "tools/train/shard_pieces.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

constexpr int64_t kPieceBytesMax = 8 << 20;

}  // namespace

std::vector<TensorSlice> SplitSlice(const TensorSlice& slice, int64_t bytes_max) {
  if (slice.bytes() <= bytes_max || slice.num_elements() <= 1) return {slice};
  size_t axis = 0;
  while (slice.shape[axis] == 1) ++axis;
  const int64_t row_bytes = slice.bytes() / slice.shape[axis];
  const int64_t rows = std::max<int64_t>(1, bytes_max / row_bytes);
  std::vector<TensorSlice> pieces;
  for (int64_t begin = 0; begin < slice.shape[axis]; begin += rows) {
    TensorSlice piece = slice;
    piece.offset[axis] += begin;
    piece.shape[axis] = std::min(rows, slice.shape[axis] - begin);
    for (TensorSlice& part : SplitSlice(piece, bytes_max)) pieces.push_back(std::move(part));
  }
  return pieces;
}

bool IsSound(const TensorSlice& slice) {
  const size_t rank = slice.global_shape.size();
  if (slice.shape.size() != rank || slice.offset.size() != rank) return false;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (slice.shape[axis] < 0 || slice.offset[axis] < 0 ||
        slice.global_shape[axis] - slice.offset[axis] < slice.shape[axis])
      return false;
  }
  return NumElements(slice.global_shape) >= 0;
}

absl::StatusOr<ShardBatch> ReadShards(const actors::Session& session, StateSet set, int64_t begin,
                                      int64_t bytes_max) {
  ShardBatch batch;
  batch.is_last = true;
  int64_t position = 0, taken = 0;
  for (const RankId rank : session.local_ranks()) {
    for (const actors::PlanState& state : session.plan(rank).states) {
      if (!BelongsTo(state.state_class, set) || !state.owner) continue;
      if (position + state.slice.bytes() <= begin && state.slice.bytes() > 0) {
        position += state.slice.bytes();
        continue;
      }
      WEIR_ASSIGN_OR_RETURN(const device::HostView memory, session.ReadState(rank, state.name));
      const char* bytes = static_cast<const char*>(memory.data());
      for (TensorSlice& slice : SplitSlice(state.slice, kPieceBytesMax)) {
        const int64_t size = slice.bytes();
        if (position >= begin && taken >= bytes_max) {
          batch.is_last = false;
          batch.end = position;
          return batch;
        }
        if (position >= begin) {
          AddValues(rank, slice, bytes, &batch.parts[state.name]);
          batch.pieces.push_back(
              {state.name, std::move(slice), std::string(bytes, static_cast<size_t>(size))});
          taken += size;
        }
        bytes += size;
        position += size;
      }
    }
  }
  batch.end = position;
  if (begin > position)
    return absl::InvalidArgumentError(absl::StrCat("no shard begins at byte ", begin));
  return batch;
}

}  // namespace weir::train
