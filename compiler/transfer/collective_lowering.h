// The collective, a member of the family of transfers: the ranks of each group do one operation
// for each tensor together (runtime/collective/collective.h), and the engine sees no message.
//
// A collective takes one station, at which every rank of the stage has one actor without edges.
// Steps are lowered so if every tensor of the transfer goes P->S, S->B or P->B, the shards of each
// group are as large as each other, and each shard lies in one piece; or if every tensor goes S->S
// and what each rank has for each other rank is as large. An all-to-all takes three stations: the
// first packs the block for each rank into one piece, and the last puts the blocks that have come
// to their places. All other steps are exchanges. The ranks of a group stand in the order in which
// an exchange sums them. Thread rule: as the factory's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/transfer/transfer_lowering.h"

namespace weir::compiler {

class CollectiveLowering final : public TransferLowering {
 public:
  // Returns whether step `k` of the tensors can be collectives.
  static bool Fits(const MovedTensors& moved, size_t k);

  // Returns the bytes that the first rank has of the tensors before or after, whichever is more.
  static int64_t BytesOf(const MovedTensors& moved, size_t k);

  // Precondition: Fits. `moved` outlives the lowering.
  CollectiveLowering(const MovedTensors& moved, size_t k, TransferOptions options);

  TransferSite Site(const Station& first) const override;
  std::vector<TensorId> LowerForRank(const TransferSite& site, const std::vector<TensorId>& inputs,
                                     RankBuilder* builder) const override;
  std::vector<TensorId> LowerForStage(const TransferSite& site, const std::vector<TensorId>& inputs,
                                      RankBuilder* builder) const override;
  int64_t TotalBytes() const override;
  // As if the ranks of a group stood in a ring, each sending to the next.
  std::map<RankId, int64_t> BytesSent(RankId rank) const override;

 private:
  bool is_all_to_all() const { return steps_[0].method == sbp::BoxingMethod::kAllToAll; }
  RankActor MakeActor(const TransferSite::End& end, const std::string& name,
                      const std::vector<TensorId>& inputs, RankBuilder* builder) const;
  TensorId AddOutput(const std::string& name, size_t i, RankBuilder* builder) const;
  enum class Side : uint8_t { kPack, kUnpack };
  // Returns the kernels that lay the blocks of a rank one after another, or do the reverse, for the
  // tensors whose blocks do not lie so anyway. Operands: the tensors before, then after.
  std::shared_ptr<const KernelChain> MakeBlockChain(Side side, RankId rank) const;
  // Adds the actor at the first or the last station of an all-to-all, if its rank has something to
  // move there, and returns the tensors after it.
  std::vector<TensorId> AddBlockActor(Side side, LoweredFor lowered_for, const TransferSite& site,
                                      const std::vector<TensorId>& inputs,
                                      RankBuilder* builder) const;
  std::vector<TensorId> Lower(LoweredFor lowered_for, const TransferSite& site,
                              const std::vector<TensorId>& inputs, RankBuilder* builder) const;

  const std::vector<sbp::TensorType>& types_;
  std::vector<sbp::BoxingStep> steps_;  // of types_
  const TransferOptions options_;
  const sbp::Places& places_;
};

}  // namespace weir::compiler
