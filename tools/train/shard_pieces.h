// The shards of a session as pieces that fit into messages: the way of weights to a file on another
// host. Pieces have an order, and a reader asks for the pieces from a position on, so that neither
// side holds more than a batch.
// Thread rule: the session's owner; SplitSlice and FitsInto are pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "runtime/base/tensor_slice.h"
#include "tools/train/session_states.h"

namespace weir::train {

struct ShardPiece {
  std::string name;
  TensorSlice slice;
  std::string bytes;  // slice.bytes() of them
};

struct ShardBatch {
  std::vector<ShardPiece> pieces;
  std::map<std::string, SavedPart> parts;  // what the pieces hold of each state
  int64_t end = 0;                         // the position after the last piece
  bool is_last = false;                    // no piece follows
};

// Returns pieces of the shards of `set` that local ranks own, from the piece at position `begin`
// (a count of bytes) on, until they have `bytes_max` bytes or more, or no piece follows.
// kInvalidArgument if no piece begins there.
absl::StatusOr<ShardBatch> ReadShards(const actors::Session& session, StateSet set, int64_t begin,
                                      int64_t bytes_max);

// Splits a slice along its first axes into slices of at most `bytes_max` bytes, or one element. The
// bytes of each, one after another, are those of `slice`.
std::vector<TensorSlice> SplitSlice(const TensorSlice& slice, int64_t bytes_max);

// Returns whether the slice is a part of its tensor with sizes that make sense.
bool IsSound(const TensorSlice& slice);

}  // namespace weir::train
