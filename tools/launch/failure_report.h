// Writes the report that a user reads at the end of a failed job: which worker failed first and
// how, its last activity, how many workers ended because of the failure, the place of the logs, and
// advice. It also sets the job's exit code. This file watches nothing and decides nothing while the
// job runs.
//
// The first failure is the earliest failure that is not the consequence of another failure. A
// worker is a follower if it ended with kExitFollowing, or because the starter had asked it or
// killed it. If all failures are followers, the first failure is a worker that left with 0 unasked
// (even if others found the job unfinished), or else a broken connection, or else the first
// follower. If a worker reports a broken connection to another worker, that report follows from the
// other worker's own failure. If a worker was frozen or stuck and then ended in its own way, the
// report tells that end too; if a worker was lost, the report tells the end instead. Thread rule:
// pure functions over values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "tools/launch/job_failure.h"
#include "tools/launch/supervisor.h"

namespace weir::launch {

// FailureReport::what of a process that was given up because it is slow.
inline constexpr char kSlowProcess[] = "slow";
// Exit code of a worker of Weir that ended because the job ended: another worker failed first, or
// the starter is gone.
inline constexpr int kExitFollowing = 75;
// Exit code of a job that made no progress, or in which a worker left with 0 too early. Both are
// faults of Weir.
inline constexpr int kExitNoProgress = 70;
// Exit code of a job that its surroundings ended: a process was stopped, a connection was cut, a
// limit was reached.
inline constexpr int kExitSurroundings = 69;

// A FailureMoment says what the job did when a process failed. A report says so, too, unless steps
// ran.
enum class FailureMoment : uint8_t {
  kSteps,
  kStart,       // the first one of the job
  kRestart,     // another start of all processes
  kRecovery,    // a new epoch began, because a process was lost before
  kGrowth,      // a new epoch began, because processes came back
  kEvaluation,  // on held-out data
  kSaving,      // of weights or a checkpoint, while no step ran
  kEnding,      // all steps are done, and each file is written or given up
};

struct FailureEvent {
  enum class Kind : uint8_t {
    kExit,    // the process ended
    kLost,    // its connection to the starter broke
    kFrozen,  // the worker no longer beats
    // The process runs and has not told the starter that it is there.
    kNoHello,
    kStuck,  // the worker lives, but none of its actors makes progress
    // The worker itself reports the failure: `reason` is what it met, for example a broken
    // connection to another worker.
    kBroken,
    kSlow,  // the starter gives the process up: `reason` is the evidence
  };
  Kind kind = Kind::kExit;
  FailureMoment moment = FailureMoment::kSteps;
  int64_t time_ns = 0;  // monotonic
  WorkerId worker;      // none: the job as a whole (kStuck)
  std::vector<RankId> ranks;
  int64_t pid = 0;
  std::string host;  // of the process; empty: the job has one host
  std::string log;   // the name of its log; empty: that of `ranks`
  int code = 0;      // kExit, as in WorkerExit
  int signal = 0;
  WorkerExit::Sent sent = WorkerExit::Sent::kNothing;
  std::string reason;  // all kinds but kExit: "no heartbeat for 4.0 s"
  // The cause that was found, for people ("its process is stopped (state T)"), and advice for it.
  // Empty: the cause is not known, and the kind of the failure gives the advice. A known cause lies
  // in the surroundings and not in Weir.
  std::string cause, advice;
  std::string last_activity;            // "actor 'forward layers.1' since 2.1 s", or empty
  int64_t activity_age_ms = 0;          // how old last_activity was at the failure
  std::vector<std::string> last_lines;  // if empty, the last lines of the worker's exit are shown
  std::vector<std::string> details;     // more lines on the reason: the waits of each actor
};
FailureEvent EventOf(const WorkerExit& exit, const std::vector<RankId>& ranks);
// Returns "pid 17", or "pid 17 on node-3".
std::string ProcessText(int64_t pid, const std::string& host);

// A worker that was killed and still exists, because the system holds it.
struct RemainingWorker {
  std::vector<RankId> ranks;
  int64_t pid = 0;
  std::string state;    // "is held in the kernel (state D)"
  std::string host;     // as in FailureEvent
  bool is_seen = true;  // false: its host does not answer
};

struct FailedJob {
  int64_t start_ns = 0;  // of the run, also if the processes have started again since; monotonic
  std::string log_directory;
  std::vector<FailureEvent> events;  // in any order; of one worker at most one kExit
  std::vector<RemainingWorker> remaining;
  WorkerProgram program = WorkerProgram::kWeir;
  // What the failure means: the end of the job, or of the failed processes alone.
  enum class Ends : uint8_t { kJob, kProcess } ends = Ends::kJob;
};

struct FailureReport {
  std::string text;  // whole lines; empty if nothing failed
  // The first failure in words, without what differs from run to run: "rank 2", "killed by SIGKILL
  // (9)", and the last activity "rank 2: actor 'forward layers.1'", which may be unknown. Unless
  // steps ran, the moment stands in the place of the activity, and every start of all processes is
  // the same moment. Empty if nothing failed.
  std::string who, what, where;
  FailureOrigin origin = FailureOrigin::kJob;
  // Every process that failed by itself, the first one first: "rank 2", "rank 3". Ends::kJob has
  // the first alone.
  std::vector<std::string> everyone;
  int64_t time_ns = 0;  // of the first failure, monotonic
  // The exit code of the first failing worker, 128 + signal, or kExitNoProgress. 0 if nothing
  // failed.
  int exit_code = 0;
};
FailureReport ReportFailure(const FailedJob& job);
// Returns the failure as the policy of restarts takes it. `who` are the processes that failed, and
// `steps_done` the steps that the job had done.
JobFailure FailureOf(const FailureReport& report, const std::string& who, int64_t steps_done);
// Returns "rank 2 (pid 17 on node-3): killed by SIGKILL (9)" of the first failure; empty if nothing
// failed.
std::string FirstFailureText(const FailedJob& job);

// A FailureMark is a failure as a trace marks it.
struct FailureMark {
  int64_t time_ns = 0;        // monotonic
  std::vector<RankId> ranks;  // of the process; empty: the job as a whole
  std::string what;           // "killed by SIGKILL (9)"
};
// Returns the failures that do not follow from others, or else the first failure: one of each
// worker, in order of time.
std::vector<FailureMark> MarkFailures(const FailedJob& job);

}  // namespace weir::launch
