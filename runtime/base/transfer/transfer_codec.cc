#include "runtime/base/transfer/transfer_codec.h"

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

using Flaw = std::optional<TransferFlaw>;

void EncodeRect(const Rect& rect, proto::RectProto* out) {
  out->mutable_begin()->Assign(rect.begin.begin(), rect.begin.end());
  out->mutable_end()->Assign(rect.end.begin(), rect.end.end());
}

Rect DecodeRect(const proto::RectProto& in) {
  return {Shape(in.begin().begin(), in.begin().end()), Shape(in.end().begin(), in.end().end())};
}

proto::ExchangeProto::Combiner EncodeCombiner(Combiner combiner) {
  return combiner == Combiner::kMax ? proto::ExchangeProto::MAX : proto::ExchangeProto::SUM;
}

Flaw DecodeCombiner(proto::ExchangeProto::Combiner in, Combiner* out) {
  switch (in) {
    case proto::ExchangeProto::SUM: *out = Combiner::kSum; return std::nullopt;
    case proto::ExchangeProto::MAX: *out = Combiner::kMax; return std::nullopt;
    default: return TransferFlaw{"a known combiner", absl::StrCat(static_cast<int>(in))};
  }
}

void EncodePack(const ExchangePack& pack, proto::ExchangeProto* out) {
  out->set_chunk_elements(pack.chunk_elements);
  proto::ExchangeProto::Pack* half = out->mutable_pack();
  for (const ExchangePiece& piece : pack.pieces) {
    proto::ExchangeProto::Piece* to = half->add_piece();
    to->set_tensor(piece.tensor);
    to->set_position(piece.position);
    EncodeRect(piece.rect, to->mutable_rect());
  }
}

void EncodeFill(const ExchangeFill& fill, proto::ExchangeProto* out) {
  out->set_chunk_elements(fill.chunk_elements);
  proto::ExchangeProto::Fill* half = out->mutable_fill();
  half->set_num_own(fill.num_own);
  for (const ExchangeRegion& region : fill.regions) {
    proto::ExchangeProto::Region* to = half->add_region();
    to->set_tensor(region.tensor);
    to->set_combiner(EncodeCombiner(region.combiner));
    EncodeRect(region.target, to->mutable_target());
    for (const ExchangeSource& source : region.sources) {
      if (source.message == ExchangeSource::kOwn) {
        EncodeRect(source.own, to->add_source()->mutable_own());
      } else {
        to->add_source()->set_message(source.message);
      }
    }
  }
}

ExchangePack DecodePack(int64_t chunk_elements, const proto::ExchangeProto::Pack& in) {
  ExchangePack pack;
  pack.chunk_elements = chunk_elements;
  for (const proto::ExchangeProto::Piece& piece : in.piece())
    pack.pieces.push_back({piece.tensor(), piece.position(), DecodeRect(piece.rect())});
  return pack;
}

Flaw DecodeSource(const proto::ExchangeProto::Source& in, ExchangeSource* out) {
  switch (in.from_case()) {
    case proto::ExchangeProto::Source::kOwn: out->own = DecodeRect(in.own()); return std::nullopt;
    case proto::ExchangeProto::Source::kMessage:
      // The number of no message stands for the own shard in the value, but not in a plan.
      if (in.message() < 0)
        return TransferFlaw{"a source among the messages", absl::StrCat("message ", in.message())};
      out->message = in.message();
      return std::nullopt;
    case proto::ExchangeProto::Source::FROM_NOT_SET: break;
  }
  return TransferFlaw{"a source that is the own shard or a message", "neither"};
}

Flaw DecodeFill(int64_t chunk_elements, const proto::ExchangeProto::Fill& in, ExchangeFill* out) {
  out->chunk_elements = chunk_elements;
  out->num_own = in.num_own();
  for (const proto::ExchangeProto::Region& region : in.region()) {
    ExchangeRegion& to = out->regions.emplace_back();
    to.tensor = region.tensor();
    to.target = DecodeRect(region.target());
    if (Flaw flaw = DecodeCombiner(region.combiner(), &to.combiner)) return flaw;
    to.sources.resize(region.source_size());
    for (int i = 0; i < region.source_size(); ++i) {
      if (Flaw flaw = DecodeSource(region.source(i), &to.sources[i])) return flaw;
    }
  }
  return std::nullopt;
}

Flaw DecodeExchange(const proto::ExchangeProto& in, Transfer* out) {
  switch (in.half_case()) {
    case proto::ExchangeProto::kPack:
      *out = DecodePack(in.chunk_elements(), in.pack());
      return std::nullopt;
    case proto::ExchangeProto::kFill:
      return DecodeFill(in.chunk_elements(), in.fill(), &out->emplace<ExchangeFill>());
    case proto::ExchangeProto::HALF_NOT_SET: break;
  }
  return TransferFlaw{"an exchange that packs or fills", "neither"};
}

void EncodeCollective(const Collective& collective, proto::CollectiveProto* out) {
  switch (collective.kind) {
    case Collective::Kind::kAllReduce: out->set_kind(proto::CollectiveProto::ALL_REDUCE); break;
    case Collective::Kind::kReduceScatter:
      out->set_kind(proto::CollectiveProto::REDUCE_SCATTER);
      break;
    case Collective::Kind::kAllGather: out->set_kind(proto::CollectiveProto::ALL_GATHER); break;
    case Collective::Kind::kAllToAll: out->set_kind(proto::CollectiveProto::ALL_TO_ALL); break;
  }
  out->set_combiner(EncodeCombiner(collective.combiner));
  for (const RankId rank : collective.ranks) out->add_rank(rank.value());
}

Flaw DecodeCollective(const proto::CollectiveProto& in, Collective* out) {
  switch (in.kind()) {
    case proto::CollectiveProto::ALL_REDUCE: out->kind = Collective::Kind::kAllReduce; break;
    case proto::CollectiveProto::REDUCE_SCATTER:
      out->kind = Collective::Kind::kReduceScatter;
      break;
    case proto::CollectiveProto::ALL_GATHER: out->kind = Collective::Kind::kAllGather; break;
    case proto::CollectiveProto::ALL_TO_ALL: out->kind = Collective::Kind::kAllToAll; break;
    default:
      return TransferFlaw{"a known kind of collective", absl::StrCat(static_cast<int>(in.kind()))};
  }
  for (const int32_t rank : in.rank()) {
    if (rank < 0) return TransferFlaw{"a group of ranks from 0", absl::StrCat("rank ", rank)};
    out->ranks.emplace_back(rank);
  }
  return DecodeCombiner(in.combiner(), &out->combiner);
}

}  // namespace

void EncodeTransfer(const Transfer& transfer, proto::KernelCall* call) {
  if (const auto* pack = std::get_if<ExchangePack>(&transfer))
    EncodePack(*pack, call->mutable_exchange());
  if (const auto* fill = std::get_if<ExchangeFill>(&transfer))
    EncodeFill(*fill, call->mutable_exchange());
  if (const auto* collective = std::get_if<Collective>(&transfer))
    EncodeCollective(*collective, call->mutable_collective());
}

std::optional<TransferFlaw> DecodeTransfer(const proto::KernelCall& call, Transfer* out) {
  *out = Transfer();
  switch (call.transfer_case()) {
    case proto::KernelCall::kExchange:
      if (Flaw flaw = DecodeExchange(call.exchange(), out)) return flaw;
      break;
    case proto::KernelCall::kCollective:
      if (Flaw flaw = DecodeCollective(call.collective(), &out->emplace<Collective>())) return flaw;
      break;
    case proto::KernelCall::TRANSFER_NOT_SET: break;
  }
  return FindFlaw(*out);
}

}  // namespace weir
