// WorkerStates are the copies of states that outlive an epoch in the memory of a worker: of its own
// ranks (kept_states.h), and of others whose buddy the worker is (guarded_states.h). A worker that
// is lost leaves its states in the copies of its replicas and of its buddy.
//
//   Leave -> { JoinBuddies -> { Keep -> (steps run) -> AddFacts }* }
//
// Thread rule: the thread that serves the worker's commands.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/session/session.h"
#include "proto/worker.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/ids.h"
#include "tools/fleet/buddy_line.h"
#include "tools/fleet/guarded_states.h"
#include "tools/fleet/kept_states.h"
#include "tools/fleet/state_parts.h"
#include "tools/train/job_session.h"

namespace weir::fleet {

class WorkerStates {
 public:
  // Ends the line to the buddy. What of the copies serves the ranks that `command` opens stays: the
  // copies of its first step, if they are of the mesh with whose states the job goes on. `session`
  // has the ranks of the old epoch, and null means none; `resting_step` is their number of steps
  // done if they are at rest, else -1. kInternal: the command wants states that are not here.
  absl::Status Leave(const proto::OpenCommand& command, const actors::Session* session,
                     int64_t resting_step);
  // Returns the mesh of the ranks (OpenCommand.layout); 0: there are none yet.
  uint32_t ranks_layout() const { return ranks_layout_; }
  // Writes the copy into ranks that go on with it. Errors are those of Session::WriteState.
  absl::Status PutInto(actors::Session* session) const { return kept_.last().PutInto(session); }

  // Joins this worker to its buddy and its charges: the network comes from `network`, and `rank` is
  // the first of this worker. The answer tells if there is no memory for the copies of others.
  // Other errors are those of BuddyLine::Connect: kUnavailable, kDeadlineExceeded if the epoch has
  // ended or the other side is gone.
  absl::Status JoinBuddies(const proto::BuddyCommand& command, RankId rank,
                           const train::NetworkFactory& network, proto::WorkerAnswer* answer);
  void LeaveBuddies() { line_.reset(); }

  // Copies the states of ranks at rest, and begins to send the copy to the buddy if the command
  // says so. A worker without memory for the copy has none.
  absl::Status Keep(const proto::RunCommand& command, const actors::Session& session,
                    proto::WorkerAnswer* answer);
  // Adds what has arrived at the buddy to the answer of a run.
  void AddFacts(proto::WorkerAnswer* answer) const;
  // Answers a StandingCommand, but for the ranks at rest.
  void AddStanding(proto::WorkerAnswer* answer) const;

  // Reads parts of the copies. kNotFound: they are not here.
  absl::Status Give(const proto::GiveCommand& command, proto::WorkerAnswer* answer) const;
  // Takes parts of states of the ranks of `session`, also those that the copies here have. The
  // bytes of a part come in order, and a state is written when it is whole. kInternal: they do not
  // fit.
  absl::Status Take(const proto::TakeCommand& command, actors::Session* session);

 private:
  absl::Status ConnectLine(const BuddyLineOptions& options, int num_ranks,
                           const train::NetworkFactory& network);
  // Returns the bytes of a range of the copies; `*gathered` may hold them.
  absl::StatusOr<absl::string_view> Read(const proto::ShardRange& range,
                                         std::string* gathered) const;
  absl::StatusOr<absl::string_view> ReadBytes(RankId rank, const std::string& name, int64_t begin,
                                              int64_t bytes) const;
  absl::Status TakeRange(const proto::ShardRange& range, const std::string& data,
                         actors::Session* session);
  // Forgets copies of another mesh than that of the ranks: new ones are made.
  void LeaveOldMesh();

  const MonotonicClock clock_{};
  KeptSteps kept_;
  GuardedStates guarded_;
  std::vector<GuardedShard> lone_;  // of this worker, of which its buddy keeps copies
  StateParts taken_;
  uint32_t ranks_layout_ = 0;        // the mesh of the ranks, and
  uint32_t copies_layout_ = 0;       // that of the copies
  std::unique_ptr<BuddyLine> line_;  // null: none. Uses the copies above
};

}  // namespace weir::fleet
