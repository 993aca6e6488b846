// One rank's side of the groups of its plan whose ranks meet at the host: the communicators, and
// the operations that acts of its collectives have begun. Ranks are of one process, and no call
// waits for another rank (runtime/collective/local_collective.h). Groups whose operations are work
// of a device are in stream_collectives.h. Thread rule: the rank's thread, or at rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/engine/program_binding.h"
#include "actors/plan/plan.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/collective/local_collective.h"

namespace weir::actors {

// The groups of a plan whose collectives a rank takes part in, and what the acts of each do.
struct PlannedGroups {
  explicit PlannedGroups(const Plan& plan);

  struct Side {
    size_t group = 0;
    std::vector<collective::Operation> operations;  // without addresses
  };
  // A group's spec has all but an id and an epoch.
  collective::CommunicatorSpec SpecOf(size_t group, RankId rank) const;

  std::vector<std::vector<RankId>> ranks;  // by group; ascending, so in one order on all ranks
  IdVector<ActorId, Side> actors;          // without operations unless the actor is a COLLECTIVE
};
// Returns the operation with the addresses that the program's call `call` is bound to.
collective::Operation WithAddresses(collective::Operation operation, const BoundProgram& program,
                                    size_t call);

class RankCollectives {
 public:
  // Joins the groups of the plan. Both arguments outlive the result. `wake` is called by another
  // thread when an operation has ended that the rank has begun. Errors are those of the library.
  static absl::StatusOr<std::unique_ptr<RankCollectives>> Create(
      const Plan* plan, collective::PolledCollectives* library, std::function<void()> wake);

  // Begins the operations of an act of the actor, whose program has the addresses; null if the
  // library needs none. What the act reads must be there. Precondition: the actor's last act has
  // ended.
  absl::Status Begin(const PlanActor& actor, const BoundProgram* program);
  // Returns whether all ranks of the group have begun the act, so that its results are there.
  absl::StatusOr<bool> HasEnded(ActorId actor);

  // Leaves all groups and joins them anew, in a new epoch. The other ranks do so, too.
  absl::Status Rejoin();

 private:
  RankCollectives(const Plan* plan, collective::PolledCollectives* library,
                  std::function<void()> wake);

  const Plan* const plan_;
  collective::PolledCollectives* const library_;
  const std::function<void()> wake_;
  const PlannedGroups groups_;
  int64_t epoch_ = 0;
  std::vector<std::unique_ptr<collective::PolledCommunicator>> communicators_;  // by group
  IdVector<ActorId, std::vector<int64_t>> under_way_;  // numbers of operations that have not ended
};

}  // namespace weir::actors
