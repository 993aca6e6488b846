// Plays one job of the simulation of recovery from its first step to its end: the trainer and the
// starter around the world of recovery_world.h. The job trains, keeps copies, writes checkpoints,
// recovers, starts again, and, when its starter or the machine fails, is resumed from its folder,
// now and then on another mesh and with other batches.
//
// What must hold:
//
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
};

struct RecoveryPlay {
  uint64_t seed = 1;
  bool tells = false;  // the story is told
};
RecoveryOutcome PlayRecovery(const RecoveryPlay& play);

}  // namespace weir::chaos
