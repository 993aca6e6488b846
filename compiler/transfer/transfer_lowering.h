// Lowers transfers. A transfer is one step in which tensors change their layout or their devices,
// so that bytes cross from rank to rank. Transfers are a family: a member says which stations it
// takes, which stations are the ends of its messages, what actors a rank has there, and how many
// bytes it sends to whom. The lowering of calls, the rhythm, the orders of memory and the simulator
// use this interface and what it writes into the graph, and know no member by name. A transfer is
// an exchange (exchange_lowering.h) or, where the job asks for them and the step allows, a
// collective (collective_lowering.h).
//
// A new member implements TransferLowering, is chosen in TransferFactory::Make, and describes what
// its kernels move in a Transfer (runtime/base/transfer/transfer.h).
// Thread rule: a factory, and the lowerings that it made, belong to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/job_settings.h"
#include "compiler/ir/rank_builder.h"
#include "compiler/transfer/known_exchanges.h"
#include "compiler/transfer/largest_shard.h"
#include "sbp/boxing_over_hosts.h"
#include "sbp/known_boxings.h"

namespace weir::compiler {

// Returns whether no rank needs a message, because each rank keeps what it has or a part of it.
bool IsLocal(const std::vector<sbp::BoxingStep>& steps);

// Tensors that move together: types[i] in steps[i]. All have one element type and the same number
// of steps; step k of all of them is one transfer.
class MovedTensors {
 public:
  explicit MovedTensors(const sbp::Boxing& boxing) : places_(boxing.places) { Add(boxing); }

  // Returns whether a tensor can move with these.
  bool Fits(const sbp::Boxing& boxing) const;
  // Precondition: Fits.
  void Add(const sbp::Boxing& boxing);
  // Returns the same moves at another place. Precondition: the tensors stay at one place, whose
  // mesh is that of `place`.
  MovedTensors At(int64_t place) const;

  // Puts one step into the place of steps `k` and k + 1 of all tensors: an all-reduce.
  // Precondition: step k is a sum into flat shards, which step k + 1 gathers.
  void JoinSteps(size_t k);

  const std::vector<sbp::TensorType>& types() const { return types_; }
  const std::vector<std::vector<sbp::BoxingStep>>& steps() const { return steps_; }
  // Over whose meshes the steps have their layouts.
  const sbp::Places& places() const { return places_; }
  size_t num_transfers() const { return steps_[0].size(); }

 private:
  std::vector<sbp::TensorType> types_;
  std::vector<std::vector<sbp::BoxingStep>> steps_;
  sbp::Places places_;
};

// TransferOptions is everything that a transfer needs besides the tensors.
struct TransferOptions {
  std::string name;            // of its actors and tensors
  uint64_t key = 0;            // unique in the program; names the edges of the transfer
  int64_t chunk_elements = 1;  // the most elements of one message
  int note = -1;               // of its actors: RankActor::note
};

class TransferLowering {
 public:
  virtual ~TransferLowering() = default;

  // Returns the stations that the transfer takes, from `first` on and one after another, with their
  // roles and peers. They are the same on all ranks, whatever part a rank has.
  virtual TransferSite Site(const Station& first) const = 0;

  // Adds the actors of the builder's rank at the stations of `site`, the last one of the builder's
  // graph. inputs[i] is the tensor here that moves, or none if this rank is not among the senders;
  // so is the result for the tensors that arrive.
  virtual std::vector<TensorId> LowerForRank(const TransferSite& site,
                                             const std::vector<TensorId>& inputs,
                                             RankBuilder* builder) const = 0;
  // The same for all ranks of the builder's stage together (ir/stage_shape.h): every station of the
  // stage has one actor, without kernels.
  virtual std::vector<TensorId> LowerForStage(const TransferSite& site,
                                              const std::vector<TensorId>& inputs,
                                              RankBuilder* builder) const = 0;

  // Returns the bytes that all ranks together send in one transfer.
  virtual int64_t TotalBytes() const = 0;
  // Returns the bytes that `rank` sends to each rank that it sends to, in one transfer. The bytes
  // of all ranks together are TotalBytes().
  virtual std::map<RankId, int64_t> BytesSent(RankId rank) const = 0;
};

class TransferFactory {
 public:
  TransferFactory() = default;  // all transfers are exchanges
  explicit TransferFactory(const RuntimeSettings& settings)
      : collectives_(settings.collectives),
        collective_bytes_min_(int64_t{settings.collective_kib_min} * 1024) {}

  // Plans the steps of a boxing item. The places of all calls are those of one job.
  absl::StatusOr<MovedTensors> Plan(const Module& module, const ProgramItem& item,
                                    const sbp::Places& places);

  // Returns the same moves with one step, an all-reduce, in the place of two, where a sum into flat
  // shards and the gather of these shards can be one collective.
  MovedTensors Joined(MovedTensors moved) const;

  // Returns whether transfer `k` of `moved` is a collective.
  bool IsCollective(const MovedTensors& moved, size_t k) const;

  // Returns the lowering of transfer `k` of `moved`, which outlives the lowering, as the factory
  // does.
  std::unique_ptr<TransferLowering> Make(const MovedTensors& moved, size_t k,
                                         TransferOptions options);

  // Returns the bytes that all transfers of `moved` send.
  int64_t TotalBytes(const MovedTensors& moved);

 private:
  const Collectives collectives_ = Collectives::kExchanges;
  const int64_t collective_bytes_min_ = 0;
  sbp::KnownBoxings known_boxings_;
  LargestShard largest_shard_;
  KnownExchanges known_exchanges_;
};

// LoweredFor says for whom a transfer is lowered.
enum class LoweredFor : uint8_t { kRank, kStage };

// Adds the site of a transfer to the builder's graph, lowers the transfer there, and moves the
// builder past the transfer's stations. Inputs and result are those of LowerForRank.
std::vector<TensorId> AddTransfer(const TransferLowering& transfer, LoweredFor lowered_for,
                                  const std::vector<TensorId>& inputs, RankBuilder* builder);

// Appends the kernels of a boxing that needs no message to `chain`, from `in` to `out`. A boxing of
// several steps uses scratch between the steps. Precondition: IsLocal(steps).
void AppendLocalTransfer(const std::string& name, const sbp::TensorType& type,
                         const std::vector<sbp::BoxingStep>& steps, RankOperand in,
                         const RankOperand& out, const RankBuilder& builder, KernelChain* chain);

}  // namespace weir::compiler
