#include "tools/fleet/piece_codec.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::fleet {

void AddPieces(train::ShardBatch* batch, proto::WorkerAnswer* answer) {
  for (train::ShardPiece& piece : batch->pieces) {
    proto::ShardPiece* const out = answer->add_piece();
    out->set_name(piece.name);
    out->mutable_slice()->set_dtype(std::string(Name(piece.slice.dtype)));
    for (int64_t size : piece.slice.shape) out->mutable_slice()->add_shape(size);
    for (int64_t offset : piece.slice.offset) out->mutable_slice()->add_offset(offset);
    for (int64_t size : piece.slice.global_shape) out->mutable_slice()->add_global_shape(size);
    out->set_data(std::move(piece.bytes));
  }
  answer->set_end(batch->end);
  answer->set_is_last(batch->is_last);
}

absl::StatusOr<train::ShardPiece> TakePiece(proto::ShardPiece* in) {
  train::ShardPiece piece;
  piece.name = in->name();
  const proto::TensorSliceProto& slice = in->slice();
  const std::optional<DType> dtype = DTypeFromName(slice.dtype());
  if (!dtype.has_value())
    return absl::DataLossError(absl::StrCat("a piece of ", piece.name, " of type ", slice.dtype()));
  piece.slice.dtype = *dtype;
  piece.slice.shape.assign(slice.shape().begin(), slice.shape().end());
  piece.slice.offset.assign(slice.offset().begin(), slice.offset().end());
  piece.slice.global_shape.assign(slice.global_shape().begin(), slice.global_shape().end());
  piece.bytes = std::move(*in->mutable_data());
  if (!train::IsSound(piece.slice) ||
      piece.slice.bytes() != static_cast<int64_t>(piece.bytes.size())) {
    return absl::DataLossError(absl::StrCat(piece.bytes.size(), " bytes for a piece ",
                                            ToText(piece.slice), " of ", piece.name));
  }
  return piece;
}

}  // namespace weir::fleet
