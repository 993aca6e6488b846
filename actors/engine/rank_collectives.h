// One rank's side of the groups of its plan: the communicators, and the operations that acts of its
// collectives have begun. Ranks are of one process, and no call waits for another rank
// (runtime/collective/local_collective.h). Thread rule: the rank's thread, or at rest.
#pragma once

#include <cstdint>
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

class RankCollectives {
 public:
  // Joins the groups of the plan. Both arguments outlive the result. Errors are those of
  // LocalCollectives, with the rank.
  static absl::StatusOr<std::unique_ptr<RankCollectives>> Create(
      const Plan* plan, collective::LocalCollectives* library);

  // Begins the operations of an act of the actor, whose program has the addresses. What the act
  // reads must be there. Precondition: the actor's last act has ended.
  absl::Status Begin(const PlanActor& actor, const BoundProgram& program);
  // Returns whether all ranks of the group have begun the act, so that its results are there.
  absl::StatusOr<bool> HasEnded(ActorId actor);

  // Leaves all groups and joins them anew, in a new epoch. The other ranks do so, too.
  absl::Status Rejoin();

 private:
  struct ActorSide {
    size_t group = 0;
    std::vector<collective::Operation> operations;  // without addresses
    std::vector<int64_t> under_way;                 // numbers of those that have not ended
  };
  RankCollectives(const Plan* plan, collective::LocalCollectives* library)
      : plan_(plan), library_(library) {}

  const Plan* const plan_;
  collective::LocalCollectives* const library_;
  int64_t epoch_ = 0;
  std::vector<std::vector<RankId>> groups_;
  std::vector<std::unique_ptr<collective::PolledCommunicator>> communicators_;  // by group
  IdVector<ActorId, ActorSide> actors_;
};

}  // namespace weir::actors
