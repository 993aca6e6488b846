// The exchange, a member of the family of transfers: every receiving rank fills regions of its new
// shards from its own shards and from messages (sbp/boxing.h).
//
// An exchange takes two stations, each other's peers: its sends, one actor for each rank that this
// rank sends to, and its fill. Large exchanges are cut into chunks by position in the receiver, so
// that what several senders send for one chunk arrives together.
// Thread rule: as the factory's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/transfer/transfer_lowering.h"

namespace weir::compiler {

class ExchangeLowering final : public TransferLowering {
 public:
  // `moved`, `largest_shard` and `known_exchanges` outlive the lowering.
  ExchangeLowering(const MovedTensors& moved, size_t k, TransferOptions options,
                   LargestShard* largest_shard, KnownExchanges* known_exchanges);

  TransferSite Site(const Station& first) const override;
  std::vector<TensorId> LowerForRank(const TransferSite& site, const std::vector<TensorId>& inputs,
                                     RankBuilder* builder) const override;
  std::vector<TensorId> LowerForStage(const TransferSite& site, const std::vector<TensorId>& inputs,
                                      RankBuilder* builder) const override;
  int64_t TotalBytes() const override;
  std::map<RankId, int64_t> BytesSent(RankId rank) const override;

 private:
  std::string SendName(RankId receiver) const;
  EdgeId EdgeOf(RankId from, RankId to) const;
  int64_t element_bytes() const;
  int64_t NumChunks(int64_t elements) const;
  RankActor MakeActor(const TransferSite::End& end, const std::string& name, int64_t chunks,
                      const RankBuilder& builder) const;
  // Adds a tensor for chunks of a message of `elements` elements, one in each act of `actor`.
  TensorId AddMessage(const std::string& name, proto::RegisterSpec::Side side, RankId peer,
                      int64_t elements, const RankActor& actor, RankBuilder* builder) const;
  // Makes the chains of all sends.
  void MakePacks(const KnownExchanges::Known& known, KnownExchanges::Chains* chains) const;
  KnownExchanges::Pack MakePack(const std::vector<sbp::Piece>& pieces, RankId rank) const;
  // `here`: the tensors that this rank has before the exchange.
  std::shared_ptr<const KernelChain> MakeFill(const sbp::RankExchange& exchange, RankId rank,
                                              const std::vector<bool>& here) const;
  ActorId AddSend(const TransferSite::End& end, const std::vector<TensorId>& inputs, RankId peer,
                  const KnownExchanges::Pack& pack, int64_t receiver_elements,
                  RankBuilder* builder) const;
  std::vector<TensorId> AddFill(const TransferSite::End& end, const std::vector<TensorId>& inputs,
                                const sbp::RankExchange& exchange,
                                const std::vector<ActorId>& sends, KnownExchanges::Chains* chains,
                                RankBuilder* builder) const;

  const std::vector<sbp::TensorType>& types_;
  std::vector<sbp::BoxingStep> steps_;  // of types_
  const TransferOptions options_;
  const sbp::Places& places_;
  LargestShard* const largest_shard_;
  KnownExchanges* const known_exchanges_;
};

// Returns the kernel of a step that needs no message.
RankKernel LocalExchangeKernel(const std::string& name, const sbp::TensorType& type,
                               const sbp::BoxingStep& step, const RankOperand& in,
                               const RankOperand& out, const RankBuilder& builder);

}  // namespace weir::compiler
