// A Transfer says what one kernel of a transfer moves. The compiler writes the description into a
// plan, and kernels, simulators and the costs of acts read the description. Neither side knows
// another form of it.
//
// Transfers are a family. In an *exchange* every receiving rank fills regions of its new shards
// from its own shards and from messages. In a *collective* a group of ranks does one operation
// together, without messages that the engine sees. A further member adds a message to the oneof
// KernelCall.transfer (proto/plan.proto), an alternative to Transfer, and its case in each function
// below.
//
// The elements that one rank receives in an exchange have numbers, the *positions*: the regions of
// the receiver laid end to end. A chunk is `chunk_elements` positions; act c of a kernel works on
// chunk c. A message holds, for one chunk, the elements of its sender, in the order of positions.
// Not here: which ranks exchange what (sbp/boxing.h), and the bytes of a message on the wire.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/combiner.h"
#include "runtime/base/ids.h"
#include "runtime/base/rect.h"

namespace weir {

// The elements of `rect` of input `tensor`, in row-major order, have the positions from `position`
// on.
struct ExchangePiece {
  int tensor = 0;
  int64_t position = 0;
  Rect rect;
  friend bool operator==(const ExchangePiece&, const ExchangePiece&) = default;
};

// The sending half: the kernel's output is the message to one peer. Inputs are local shards.
struct ExchangePack {
  int64_t chunk_elements = 1;
  std::vector<ExchangePiece> pieces;
  friend bool operator==(const ExchangePack&, const ExchangePack&) = default;
};

// A source of a region: a message, or `own` of the rank's own shard of the region's tensor.
struct ExchangeSource {
  static constexpr int kOwn = -1;
  int message = kOwn;  // counts the kernel's messages from 0
  Rect own;            // as large as the region
  friend bool operator==(const ExchangeSource&, const ExchangeSource&) = default;
};

// A part of output `tensor`. One source: a copy. None: the combiner's neutral element. Several: the
// sources are combined in pairs, as the leaves, in the order listed, of a tree whose left half is
// the largest power of two below their number: ((a b) (c d)) e. So aligned runs of 2^k sources may
// be combined elsewhere before, and the bits stay the same.
struct ExchangeRegion {
  int tensor = 0;
  Combiner combiner = Combiner::kSum;
  Rect target;
  std::vector<ExchangeSource> sources;
  friend bool operator==(const ExchangeRegion&, const ExchangeRegion&) = default;
};

// The receiving half: the kernel's first `num_own` inputs are the rank's own shards, one for each
// output or absent, and the other inputs are messages. Outputs are the new shards.
struct ExchangeFill {
  int64_t chunk_elements = 1;
  int num_own = 0;
  std::vector<ExchangeRegion> regions;
  friend bool operator==(const ExchangeFill&, const ExchangeFill&) = default;
};

// One operation of a group of ranks, from the call's only input to its only output, both without
// gaps (runtime/collective/collective.h has what each rank gets).
struct Collective {
  enum class Kind : uint8_t {
    kAllReduce,      // the output is as large as the input
    kReduceScatter,  // the input has a shard for each rank, in the order of the group
    kAllGather,      // so has the output
    kAllToAll,       // the input has a block for each rank, the output one of each
  };
  Kind kind = Kind::kAllReduce;
  Combiner combiner = Combiner::kSum;  // of the reductions
  std::vector<RankId> ranks;           // of the job, in the order of the group
  friend bool operator==(const Collective&, const Collective&) = default;
};
const char* Name(Collective::Kind kind);  // "all-reduce"

// Monostate: the kernel belongs to no transfer.
using Transfer = std::variant<std::monostate, ExchangePack, ExchangeFill, Collective>;

// A TransferFlaw says what a description should be, and what was found. The reader of the
// description adds code and place.
struct TransferFlaw {
  std::string expected;
  std::string found;
};

// Looks for a flaw in what a description says by itself: chunks of no element, numbers below 0 or
// beyond the limits of a plan (runtime/base/plan_limits.h), rectangles that are not in order,
// sources that are not as large as their region. Numbers of a description without a flaw may be
// multiplied and added as positions are, without overflow.
std::optional<TransferFlaw> FindFlaw(const Transfer& transfer);

// Looks for a flaw beside FindFlaw(Transfer): a piece that is not inside one of the `inputs`.
std::optional<TransferFlaw> FindFlawWith(const ExchangePack& pack, absl::Span<const Shape> inputs);
// Looks for a flaw beside FindFlaw(Transfer): own shards or messages that are not among the inputs.
std::optional<TransferFlaw> FindFlawWith(const ExchangeFill& fill, int64_t num_inputs);

// Looks for a flaw beside FindFlaw(Transfer): an input and an output whose elements do not fit the
// kind and the number of ranks.
std::optional<TransferFlaw> FindFlawWith(const Collective& collective, int64_t input_elements,
                                         int64_t output_elements);

// Returns the elements of each chunk of the message that the kernel makes, for chunks 0 to
// num_chunks - 1. Empty: the kernel makes no message. Precondition: no flaw.
std::vector<int64_t> MessageElements(const Transfer& transfer, int64_t num_chunks);

// A TransferTraffic says how a kernel uses memory, by the kernel's op. No other code outside the
// definitions and kernels knows the ops of transfers by name.
enum class TransferTraffic : uint8_t {
  kNone,     // the op belongs to no transfer
  kMessage,  // an act reads and writes as many bytes as its output has
  kChunk,    // an act reads and writes one chunk of the operands
};
TransferTraffic TransferTrafficOf(const std::string& op);

}  // namespace weir
