// The reference for collectives: the ranks are threads of one process, and their memory is memory
// of the host, as that of an emulated CUDA device is. A sum has the CPU's bits: ranks are combined
// in pairs in the group's order, as the sources of an ExchangeRegion are (runtime/base/transfer),
// in f32, and a sum of bf16 or f16 is rounded once. A maximum of real numbers is NaN if one of its
// terms is.
//
// A stream without a handle is the calling thread, where an operation is done on return. Another
// stream is an EmulatedStream, which tries the operation until all ranks of the group have come. So
// these communicators are also the NCCL of emulated GPUs.
//
// Where NCCL would wait for ever, a communicator fails: ranks that issue other operations, or the
// operations of shared groups in other orders, get W0951 with both sides; ranks that wait for one
// that does not come get W0953 with the missing ranks. Orders are compared between every two ranks.
// A circle of three ranks or more, of which no two disagree, is found by W0953.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/collective/collective.h"

namespace weir::collective {

// One rank's side of a group whose ranks never wait for each other: the rank that comes to an
// operation last does the operation for all, and the others ask whether this has happened. So the
// ranks may be tasks of one thread. Thread rule: one thread at a time.
class PolledCommunicator {
 public:
  virtual ~PolledCommunicator() = default;  // aborts what has not ended
  virtual const CommunicatorSpec& spec() const = 0;
  // Comes to the next operation and returns its number. What is to be read must be there, and the
  // memory stays until the operation has ended. Errors are those of Communicator::Run.
  virtual absl::StatusOr<int64_t> Begin(const Operation& operation) = 0;
  // Returns whether all ranks have come to the operation and its results are there; the number is
  // gone after `true`. W0953 if an operation is overdue, with the ranks that have not come; else
  // the first error of the group. Never waits for other ranks.
  virtual absl::StatusOr<bool> HasEnded(int64_t number) = 0;
};

// Thread rule: any thread; outlives its communicators.
class PolledCollectives {
 public:
  virtual ~PolledCollectives() = default;
  // Makes one rank's polled communicator without waiting for the other ranks. `spec.unique_id` is
  // any name that the caller gives to the group and the epoch. `wake` is called when an operation
  // has ended that this rank has begun and another rank has ended: by the thread of the other rank,
  // which holds no lock. May be null.
  virtual absl::StatusOr<std::unique_ptr<PolledCommunicator>> CreatePolled(
      const CommunicatorSpec& spec, std::function<void()> wake) = 0;
};

// Thread rule: any thread; outlives its communicators.
class LocalCollectives final : public CollectiveLibrary, public PolledCollectives {
 public:
  LocalCollectives();
  ~LocalCollectives() override;

  std::string name() const override { return "local collectives"; }
  absl::StatusOr<std::string> NewUniqueId() override;
  absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorSpec& spec) override;
  absl::StatusOr<std::unique_ptr<PolledCommunicator>> CreatePolled(
      const CommunicatorSpec& spec, std::function<void()> wake) override;

  class World;

 private:
  const std::shared_ptr<World> world_;
};

}  // namespace weir::collective
