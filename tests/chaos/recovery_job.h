// Plays one job of the simulation of recovery from its first step to its end: the trainer and the
// starter around the world of recovery_world.h. The job trains, keeps copies, writes checkpoints,
// recovers, moves to other hosts, becomes smaller, starts again, and, when its starter or the
// machine fails, is resumed from its folder, now and then on another mesh and with other batches.
//
// What must hold:
//
//   memory       a recovery takes the last step of which memory has every element, and every
//   element
//                is of that step; copies of buddies survive the loss of a host
//   hosts        nobody starts on a lost host, a host in reserve takes the place of one, and the
//                mesh becomes smaller only without processes that do not come back
//   epochs       nothing of an old epoch is applied, and no two epochs act on one state
//   readable     every committed checkpoint is whole, and `latest` names one
//   kept         no run goes on behind a checkpoint whose commit has returned
//   samples      all states have seen each sample exactly once, in order, up to their step
//   ends         the job ends with all its steps, or with a reason that the policy of restarts
//                gives rightly; it never waits for what cannot come
//
// Everything follows from the seed. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir::chaos {

struct RecoveryOutcome {
  std::string violation;  // what does not hold; empty: all holds
  std::string refusal;    // why the policy of restarts has ended the job; empty: it is done
  std::vector<std::string> story;  // what happened, line by line, if it was asked for
  int64_t events = 0, faults = 0, epochs = 0, restarts = 0, resumes = 0, commits = 0;
  int64_t moved_bytes = 0, loads = 0, fenced = 0;
  int64_t buddy_copies = 0;  // that have arrived everywhere
  int64_t buddy_bytes = 0;   // that came back from buddies
  int64_t hosts_lost = 0, mesh_changes = 0, growths = 0;
  int64_t moved_workers = 0;  // to another host
};

struct RecoveryPlay {
  uint64_t seed = 1;
  bool tells = false;  // the story is told
};
RecoveryOutcome PlayRecovery(const RecoveryPlay& play);

}  // namespace weir::chaos
