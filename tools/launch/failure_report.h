// What a user reads at the end of a failed job: which worker failed first and how, what it did
// last, how many ended because of it, where the logs are and what to try. Also the job's exit code.
// It watches nothing and decides nothing while the job runs.
//
// Which failure counts as first: the earliest that is not the consequence of another. A worker that
// ended with kExitFollowing, or as the starter had asked it or killed it, follows; if there is
// nothing else, one that left with 0 unasked counts, though others found the job unfinished, or
// else a connection that broke, or else the first follower. What a worker says of a broken
// connection to another follows from that other's own failure. If a worker was frozen or stuck and
// then ended in a way of its own, that end is told too; if it was lost, the end is told instead.
// Thread rule: pure functions over values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/launch/supervisor.h"

namespace weir {

// Exit code of a worker that ended because the job did: another worker failed first, or the
// starter is gone.
inline constexpr int kExitFollowing = 75;
// Exit code of a job that made no progress, or of which a worker left with 0 too early: a fault of
// Weir.
inline constexpr int kExitNoProgress = 70;
// Exit code of a job that its surroundings ended: a process that was stopped, a connection that was
// cut, a limit.
inline constexpr int kExitSurroundings = 69;

struct FailureEvent {
  enum class Kind : uint8_t {
    kExit,    // the process ended
    kLost,    // its connection to the starter broke
    kFrozen,  // it no longer beats
    kStuck,   // it lives, but no actor of it makes progress
    kBroken,  // it says so itself: `reason` is what it met, such as a broken connection to another
              // worker
  };
  Kind kind = Kind::kExit;
  int64_t time_ns = 0;  // monotonic
  int worker = -1;      // -1: the job as a whole (kStuck)
  std::vector<int> ranks;
  int64_t pid = 0;
  int code = 0;  // kExit, as in WorkerExit
  int signal = 0;
  WorkerExit::Sent sent = WorkerExit::Sent::kNothing;
  std::string reason;  // all but kExit: "no heartbeat for 4.0 s"
  // What was found to be behind it, for people: "its process is stopped (state T)"; and what to try
  // then. Empty: not known; then the advice is the one that the kind suggests. What is known is the
  // surroundings' doing, not Weir's.
  std::string cause, advice;
  std::string last_activity;            // "actor 'forward layers.1' since 2.1 s", or empty
  int64_t activity_age_ms = 0;          // how long before the failure that was said
  std::vector<std::string> last_lines;  // if empty, those of the worker's exit are told
  std::vector<std::string> details;     // more lines on the reason: what each actor waits for
};
FailureEvent EventOf(const WorkerExit& exit, const std::vector<int>& ranks);

// A worker that was killed and is not gone: the system holds it.
struct RemainingWorker {
  std::vector<int> ranks;
  int64_t pid = 0;
  std::string state;  // "is held in the kernel (state D)"
};

struct FailedJob {
  int64_t start_ns = 0;  // monotonic
  std::string log_directory;
  std::vector<FailureEvent> events;  // in any order; of one worker at most one kExit
  std::vector<RemainingWorker> remaining;
};

struct FailureReport {
  std::string text;  // whole lines; empty if nothing failed
  int exit_code =
      0;  // the first failing worker's own, 128 + signal, or kExitNoProgress; 0 if nothing failed
};
FailureReport ReportFailure(const FailedJob& job);

}  // namespace weir
