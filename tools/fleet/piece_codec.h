// Pieces of shards, and their places in tensors, as the messages between a worker and its starter
// carry them. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "tools/train/shard_pieces.h"

namespace weir::fleet {

proto::TensorSliceProto SliceToProto(const TensorSlice& slice);
// kDataLoss if the message describes no part of a tensor; the error names `name`.
absl::StatusOr<TensorSlice> SliceFrom(const std::string& name, const proto::TensorSliceProto& in);

// Moves the pieces of the batch into the answer, and tells where the batch ends.
void AddPieces(train::ShardBatch* batch, proto::WorkerAnswer* answer);

// Moves a piece out of a message. kDataLoss if the bytes are not those of a part of a tensor.
absl::StatusOr<train::ShardPiece> TakePiece(proto::ShardPiece* piece);

}  // namespace weir::fleet
