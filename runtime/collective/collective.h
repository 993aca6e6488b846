// Collectives: operations that a group of ranks does together on the memory of its devices. A
// Communicator is one rank's side of a group whose ranks have an order. Its operations are put into
// a stream of the rank's device, as kernels are, and need no host between them.
//
//   kind           `from`, elements  `to`, elements  what rank r gets                  in place
//   ALL-REDUCE     count             count           to[i] = combine of all from[i]     to == from
//   REDUCE-SCATTER size * count      count           to[i] = combine of all             to == from
//   +
//                                                            from[r * count + i]        r * count
//   ALL-GATHER     count             size * count    to[s * count + i] =                from == to
//   +
//                                                            from[i] of rank s          r * count
//   ALL-TO-ALL     size * count      size * count    to[s * count + i] =                never
//                                                            from[r * count + i] of s
//   SEND-RECEIVE   moves             moves           the k-th receive from s is the     never
//                                                    k-th send of s to r
//
// In any other way `from` and `to` do not overlap. Addresses are multiples of the element's size;
// multiples of 16 bytes are faster. A count of 0 is an operation like any other, which moves
// nothing. A combine is a sum or a maximum of f32, bf16, f16 or i32, and its bits are the same on
// all ranks. How a sum is associated, and how often a sum of bf16 or f16 is rounded, is the
// library's choice.
//
// Order: all ranks of a group issue the same operations in the same order, with the same counts and
// types. Ranks that share several groups issue the operations of all of these groups in one order.
// A local communicator tells those who break this; NCCL waits for ever, so a rank finds out by
// AsyncError. Operations need not be done in the order of their issue, unless one stream has them.
//
// Errors: the first error of a communicator stays, and its later operations fail. Then every rank
// of the group calls Abort, and the ranks make a new communicator with a higher epoch.
//
// Thread rule: one thread for each device makes, uses, aborts and destroys the communicators of
// that device. Another thread stops the first by CommunicatorSpec::stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/combiner.h"
#include "runtime/base/dtype.h"
#include "runtime/base/ids.h"
#include "runtime/device/cuda/cuda_stream.h"
#include "runtime/transport/exchange.h"

namespace weir::collective {

struct Operation {
  enum class Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll };

  Kind kind = Kind::kAllReduce;
  DType dtype = DType::kF32;
  Combiner combiner = Combiner::kSum;  // only for reductions
  int64_t count = 0;                   // elements, see the table
  const char* from = nullptr;          // may be null if the count is 0; so may `to`
  char* to = nullptr;
};
constexpr bool IsReduction(Operation::Kind kind) {
  return kind == Operation::Kind::kAllReduce || kind == Operation::Kind::kReduceScatter;
}

struct SendMove {
  int to_rank = 0;
  int64_t count = 0;
  const char* from = nullptr;
};
struct ReceiveMove {
  int from_rank = 0;
  int64_t count = 0;
  char* to = nullptr;
};
// One SEND-RECEIVE. A rank may send to itself. Sends and receives are done together, so their order
// matters only among those between the same two ranks. No two receives overlap, nor does a receive
// overlap a send.
struct Moves {
  DType dtype = DType::kF32;
  absl::Span<const SendMove> sends;
  absl::Span<const ReceiveMove> receives;
};

// Tells how far a stream has come, for a communicator that cannot see this itself. The device has
// the events for it. Thread rule: the thread of the device.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;
  // Returns a mark after all that is in the stream now.
  virtual absl::StatusOr<int64_t> Mark(device::CudaStream stream) = 0;
  // Returns whether the stream has passed the mark, which is gone after `true`. Never blocks.
  virtual absl::StatusOr<bool> IsPast(int64_t mark) = 0;
  // Forgets a mark that the stream has not passed.
  virtual void Drop(int64_t mark) = 0;
};

struct CommunicatorSpec {
  std::string group;          // the name in errors: "dp of stage 1"
  int64_t epoch = 0;          // rises each time the group gets a new communicator
  std::vector<RankId> ranks;  // of the job, in the order of the group; each occurs once
  int rank = 0;               // the own place in `ranks`
  std::string unique_id;      // of the group and the epoch: NewUniqueId of one rank
  // How long a rank waits for the others to make the communicator and to be connected.
  int64_t limit_ms = 60'000;
  // An operation that has not ended so long after its issue is an error. 0: never.
  int64_t overdue_ms = 300'000;
  // Where NCCL learns that operations have ended. Null: it does not, and none is overdue. Outlives
  // the communicator.
  StreamMarks* marks = nullptr;
  // Whoever sets `*stop` ends the waits of the communicator. May be null.
  const std::atomic<bool>* stop = nullptr;

  int size() const { return static_cast<int>(ranks.size()); }
};

class Communicator {
 public:
  // Aborts what is not done.
  virtual ~Communicator() = default;
  virtual const CommunicatorSpec& spec() const = 0;
  int rank() const { return spec().rank; }
  int size() const { return spec().size(); }

  // Put an operation into the stream; the memory stays until the stream has passed it. On return
  // the operation need not have begun. W0951 if the arguments break the contract, or ranks are
  // found to disagree; W0952 if the library refuses or a peer has failed.
  virtual absl::Status Run(const Operation& operation, device::CudaStream stream) = 0;
  virtual absl::Status SendReceive(const Moves& moves, device::CudaStream stream) = 0;

  // Returns the first error, and looks for new ones: failed peers, and operations that are overdue
  // (W0953, with group, number, kind and bytes). A rank calls this now and then while operations
  // are in flight. Never blocks.
  virtual absl::Status AsyncError() = 0;

  // Ends all operations in flight, whose results are then undefined, and lets their streams go on.
  // Does not wait for other ranks, which call Abort themselves. A second call does nothing.
  virtual void Abort() = 0;
};

// A CollectiveLibrary makes communicators. Thread rule: any thread.
class CollectiveLibrary {
 public:
  virtual ~CollectiveLibrary() = default;
  // Returns the name and version, for people: "NCCL 2.28.9".
  virtual std::string name() const = 0;
  // Returns the id of a group that is not there yet, at most a few hundred bytes of any value.
  virtual absl::StatusOr<std::string> NewUniqueId() = 0;
  // Makes one rank's communicator, and returns when all ranks of the group have called this.
  // Returns W0952 after the limit, or once `*spec.stop` is set. The device of the rank is the
  // thread's current device. Ranks that share several groups make these in one order.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorSpec& spec) = 0;
};

// Returns the name under which the id of a group travels: the first rank of `spec.ranks` publishes
// it.
std::string IdSubject(const CommunicatorSpec& spec);
// Returns the rank that publishes under this name; RankId() if IdSubject makes no such name.
RankId RankOfIdSubject(const std::string& subject);

// Makes a communicator whose id travels in `exchange` under IdSubject. `spec.unique_id` is not
// used.
absl::StatusOr<std::unique_ptr<Communicator>> CreateOver(transport::Exchange* exchange,
                                                         CollectiveLibrary* library,
                                                         CommunicatorSpec spec);

// The bytes that WarmUp writes over, for a group of `size` ranks.
int64_t WarmUpBytes(int size);
// Issues an operation of each kind, so that no later operation connects ranks or loads kernels
// (which waits for the device, and may so wait for ever beside a collective that is under way). All
// ranks call this in the order of their groups, after their own kernels are loaded, and then wait
// for their streams. `scratch` is WarmUpBytes(size) of the device, 16-byte aligned.
absl::Status WarmUp(Communicator* communicator, char* scratch, device::CudaStream stream);

}  // namespace weir::collective
