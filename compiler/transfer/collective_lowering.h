// The collective, a member of the family of transfers: the ranks of each group do one operation
// for each tensor together (runtime/collective/collective.h), and the engine sees no message.
//
// A collective takes one station, at which every rank of the stage has one actor without edges.
// Steps are lowered so if every tensor of the transfer goes P->S, S->B or P->B, the shards of each
// group are as large as each other, and each shard lies in one piece. All other steps are
// exchanges. The ranks of a group stand in the order in which an exchange sums them.
// Thread rule: as the factory's.
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
  RankActor MakeActor(const TransferSite& site, const std::vector<TensorId>& inputs,
                      RankBuilder* builder) const;

  const std::vector<sbp::TensorType>& types_;
  std::vector<sbp::BoxingStep> steps_;  // of types_
  const TransferOptions options_;
  const sbp::Places& places_;
};

}  // namespace weir::compiler
