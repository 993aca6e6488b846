// One rank's share of the program before registers exist: the actors, and the tensors that pass
// between them. LowerToRankGraph builds the graph, and AllocateRegisters turns the graph into a
// RankPlan.
// Thread rule: plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "proto/plan.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/rate.h"
#include "runtime/base/transfer/transfer.h"
#include "runtime/base/transfer/transfer_note.h"

namespace weir::compiler {

// A Station says where an actor stands in the program; it is equal on all ranks. `item` is the
// program item. `index` counts the item's segments and the stations of its transfers, in order.
struct Station {
  int item = -1;
  int index = 0;
  friend auto operator<=>(const Station&, const Station&) = default;
};

// A TransferRole says what an actor does in a transfer.
enum class TransferRole : uint8_t {
  kNone,      // the actor belongs to no transfer
  kSends,     // the actor's messages go to actors of the peer station
  kReceives,  // the actor reads messages of actors of the peer station
  kMeets,     // the actor acts together with those of other ranks at its own station
};

// A TransferSite is one transfer of the program as all ranks of a stage know it: its stations, in
// order, and the station at the far end of the messages of each. The transfer's lowering describes
// the site (compiler/transfer/transfer_lowering.h), and nobody else knows where the ends of a
// message stand.
struct TransferSite {
  struct End {
    Station station;
    TransferRole role = TransferRole::kNone;
    Station peer;
  };
  std::vector<End> ends;

  // Returns the peer of `station`, or null if the transfer does not have that station.
  const Station* PeerOf(const Station& station) const {
    for (const End& end : ends) {
      if (end.station == station) return &end.peer;
    }
    return nullptr;
  }
};

using TensorId = Id<struct TensorTag>;  // in RankGraph::tensors

// A tensor (or message) that leaves an actor. The tensor becomes part of a register.
struct RankTensor {
  std::string name;
  int64_t bytes = 0;
  int64_t tokens_per_step = 1;
  int64_t every = 1;               // tokens_per_step tokens come in this number of steps
  ActorId producer;                // none: inbound from `peer`
  std::vector<ActorId> consumers;  // ascending; empty for outbound
  int output = -1;                 // index among the outputs of its station, known to all ranks
  // Only for a local tensor: the stations that read the tensor on some rank of the stage,
  // ascending. Slots and times follow from `readers`, and so are the same on all ranks, whatever
  // stations read the tensor on this rank.
  std::vector<Station> readers;
  proto::RegisterSpec::Side side = proto::RegisterSpec::LOCAL;
  RankId peer;
  EdgeId edge;
  int variable = -1;  // Module::variables: lives in a state
  // A tensor without bytes, from a sender to the receiver of the same transfer on the same rank: it
  // orders the two.
  bool paces = false;
  int64_t delay = 0;     // tokens by which its readers lag
  int gradient_of = -1;  // with a delay: Module::variables
  int64_t slots = 0;     // given, whatever the job chooses for others; 0: by the job's choice
  // Inbound: the peer writes for micro-batch n only after this actor has done all its acts for
  // micro-batch n - lag.
  struct After {
    ActorId actor;  // none: the peer writes whenever it has credit
    int64_t lag = 0;
  } written_after = {};
};

// Returns the number of tokens that exist before the first step. A weight that no actor reads here
// (a shard without samples) has none, because its token would wait for ever.
inline int64_t InitialTokens(const RankTensor& tensor) {
  if (tensor.variable >= 0) return tensor.consumers.empty() ? 0 : 1;
  return tensor.delay;
}

struct RankOperand {
  enum Kind : uint8_t { kNone, kTensor, kScratch, kState } kind = kNone;
  int index = -1;  // in RankActor::operands, KernelChain::scratch or RankActor::states
  TensorSlice slice;
};

struct RankKernel {
  std::string op;
  std::string name;  // empty: the actor's
  Attributes attrs;
  std::vector<RankOperand> inputs, outputs;
  uint64_t rng_key = 0;
  Transfer transfer = {};
};

// A KernelChain is what actors do in an act, apart from the tensors and states that they do it
// with. Calls of one function, and transfers that move alike, share a chain.
struct KernelChain {
  std::vector<RankKernel> kernels;
  std::vector<int64_t> scratch;  // bytes of each scratch block
  std::vector<int> reads;        // operands kTensor that kernels read, in order, without repeats
  bool writes_state = false;
};

// Returns the chain with `reads` and `writes_state` filled in.
std::shared_ptr<const KernelChain> MakeChain(KernelChain chain);

struct RankState {
  std::string name;
  std::string weight;  // as in ItemState
  TensorSlice slice;
  sbp::Layout layout;
  proto::Initializer init;
};

// The pass of a micro-batch through the pipeline that an actor works for. kUpdate: the actor
// carries gradients to the update of the weights.
enum class Wave : uint8_t { kForward, kBackward, kWeightGradient, kUpdate, kNone };

struct RankActor : Rate {
  std::string name;
  Station station;
  proto::ActorSpec::Kind kind = proto::ActorSpec::COMPUTE;
  PhaseKind phase = PhaseKind::kForward;
  Wave wave = Wave::kNone;
  int64_t part = 0;                          // of the pipeline
  std::string program;                       // name of its kernel chain
  std::shared_ptr<const KernelChain> chain;  // null: no kernels
  std::vector<TensorId> operands;            // of the chain
  std::vector<StateId> states;               // of the chain
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  uint64_t instance = 0;
  std::string feed;
  TensorSlice feed_slice;
  std::optional<IndexRange> feed_range;
  std::string function;
  // Only for an actor of a transfer:
  TransferRole role = TransferRole::kNone;
  int site = -1;         // in RankGraph::sites
  RankId peer;           // kSends: the rank that gets the messages
  std::string far_name;  // of the actors at the far ends of the messages, on their own ranks
  int note = -1;         // in RankGraph::notes; -1: none
};

struct RankGraph {
  RankId rank;
  int64_t stage = 0;
  // The actors of the rank's plan, with its ids.
  IdVector<ActorId, RankActor> actors;
  IdVector<TensorId, RankTensor> tensors;
  // The first states of the plan, with its ids.
  IdVector<StateId, RankState> states;
  // The transfers of the stage, in the order of the program. Includes the transfers that this rank
  // has no part in.
  std::vector<TransferSite> sites;
  // The notes say what transfers of this rank change, for people. Transfers of equal calls share a
  // note. A graph that stands for a whole stage has none.
  std::vector<TransferNote> notes;

  // Returns the station at the far end of the messages of an actor of a transfer.
  const Station& PeerOf(const RankActor& actor) const {
    return *sites[actor.site].PeerOf(actor.station);
  }
};

}  // namespace weir::compiler
