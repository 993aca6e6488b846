// One rank's side of the groups of its plan whose operations are work of its device: the
// communicators, in a queue of the device that collectives have for themselves. The queue waits for
// what an act reads and writes over by events, as every queue does, and then for the other ranks of
// the group. What other queues do never waits for another rank, because the results of a collective
// are passed on only when the host knows that they are there.
//
//   Create (any thread) -> Join (the rank's thread, before its first act) -> Issue, Check ...
//                       -> Leave or Abort
//
// Groups are joined in one order on all ranks, and their operations are issued in the order of the
// plan (start_order.h). Thread rule: the rank's thread, or at rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/engine/program_binding.h"
#include "actors/engine/rank_collectives.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"
#include "runtime/collective/collective.h"
#include "runtime/device/device.h"
#include "runtime/transport/exchange.h"

namespace weir::actors {

struct StreamCollectivesOptions {
  collective::CollectiveLibrary* library = nullptr;  // outlives the groups, as does
  transport::Exchange* exchange = nullptr;           // where ids of groups travel
  uint32_t epoch = 1;                                // of the plan: a later one makes new groups
  uint16_t role = 0;                                 // which of the job's networks has the groups
  QueueId queue;                                     // of the device, for collectives alone
};

// Returns how many works of collectives a rank may have in flight: an act of each actor, and those
// that connect the ranks. The device has room for them beside the plan's depth.
int NumCollectivesInFlight(const Plan& plan);

class StreamCollectives final : private collective::StreamMarks {
 public:
  // Takes the memory that Join needs. `plan` and `device` outlive the groups; the device is a CUDA
  // device, or its emulation.
  static absl::StatusOr<std::unique_ptr<StreamCollectives>> Create(
      const Plan* plan, device::Device* device, const StreamCollectivesOptions& options);

  // Makes the communicators, does an operation of each kind on them, and returns when the device
  // has done these. Waits for the other ranks of the groups, up to the limits of the communicators
  // or until `stop`, which outlives the communicators. Errors are those of
  // CollectiveLibrary::Create and Communicator::AsyncError.
  absl::Status Join(const std::atomic<bool>& stop);
  bool has_joined() const { return has_joined_; }
  // The works of the device's queue that Join has launched.
  int64_t num_own_works() const { return num_own_works_; }

  // Puts the operations of an act into the queue. `position` is that of the act there.
  absl::Status Issue(const PlanActor& actor, const BoundProgram& program, int64_t position);
  // Returns the first error of the groups: a failed peer, or an operation that is overdue.
  absl::Status Check();
  // Leaves the groups, which have nothing in flight, in order.
  void Leave();
  // Ends what is in flight. The other ranks do so, too.
  void Abort();

 private:
  StreamCollectives(const Plan* plan, device::Device* device,
                    const StreamCollectivesOptions& options)
      : plan_(plan), device_(device), options_(options), groups_(*plan) {}
  device::CudaStream stream() const;
  static void WarmUpAll(void* self);
  absl::StatusOr<int64_t> Mark(device::CudaStream stream) override;
  absl::StatusOr<bool> IsPast(int64_t mark) override;
  void Drop(int64_t) override {}

  const Plan* const plan_;
  device::Device* const device_;
  const StreamCollectivesOptions options_;
  const PlannedGroups groups_;
  device::DeviceBlock scratch_;  // that warming up writes over
  std::vector<std::unique_ptr<collective::Communicator>> communicators_;  // by group
  absl::Status warmed_up_;
  int64_t position_ = 0;  // of the act that is being issued
  int64_t num_own_works_ = 0;
  bool has_joined_ = false;
};

}  // namespace weir::actors
