#include "tools/fleet/piece_codec.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::fleet {

proto::TensorSliceProto SliceToProto(const TensorSlice& slice) {
  proto::TensorSliceProto out;
  out.set_dtype(std::string(Name(slice.dtype)));
  for (int64_t size : slice.shape) out.add_shape(size);
  for (int64_t offset : slice.offset) out.add_offset(offset);
  for (int64_t size : slice.global_shape) out.add_global_shape(size);
  return out;
}

absl::StatusOr<TensorSlice> SliceFrom(const std::string& name, const proto::TensorSliceProto& in) {
  const std::optional<DType> dtype = DTypeFromName(in.dtype());
  if (!dtype.has_value())
    return absl::DataLossError(absl::StrCat("a part of ", name, " of type ", in.dtype()));
  TensorSlice slice;
  slice.dtype = *dtype;
  slice.shape.assign(in.shape().begin(), in.shape().end());
  slice.offset.assign(in.offset().begin(), in.offset().end());
  slice.global_shape.assign(in.global_shape().begin(), in.global_shape().end());
  if (!train::IsSound(slice))
    return absl::DataLossError(absl::StrCat("a part ", ToText(slice), " of ", name));
  return slice;
}

void AddPieces(train::ShardBatch* batch, proto::WorkerAnswer* answer) {
  for (train::ShardPiece& piece : batch->pieces) {
    proto::ShardPiece* const out = answer->add_piece();
    out->set_name(piece.name);
    *out->mutable_slice() = SliceToProto(piece.slice);
    out->set_data(std::move(piece.bytes));
  }
  answer->set_end(batch->end);
  answer->set_is_last(batch->is_last);
}

absl::StatusOr<train::ShardPiece> TakePiece(proto::ShardPiece* in) {
  train::ShardPiece piece;
  piece.name = in->name();
  WEIR_ASSIGN_OR_RETURN(piece.slice, SliceFrom(piece.name, in->slice()));
  piece.bytes = std::move(*in->mutable_data());
  if (piece.slice.bytes() != static_cast<int64_t>(piece.bytes.size())) {
    return absl::DataLossError(absl::StrCat(piece.bytes.size(), " bytes for a piece ",
                                            ToText(piece.slice), " of ", piece.name));
  }
  return piece;
}

}  // namespace weir::fleet
