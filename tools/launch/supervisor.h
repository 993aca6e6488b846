// The worker processes of a job. A Supervisor starts workers, collects their output, passes signals
// on, sees workers end, and leaves nothing behind. It knows nothing of training. Data for a worker
// beyond its arguments goes to the worker's standard input, once. The workers run on this host
// (Supervisor::Start) or on several (tools/hosts/hosts_supervisor.h).
//
//   Start -> { Wait }* -> Stop
//
// If the starter of a worker dies for any reason, the system kills the worker (PR_SET_PDEATHSIG).
// When a worker has ended, the processes that it started in its process group are killed. A worker
// has its own process group, so a Ctrl-C reaches only the starter, which passes it on
// (signal_watch.h). Worker output is standard output and error, in the order printed. The bytes go
// to the worker's own file unchanged. Lines also go to the console with "[ranks 2-3] " in front, if
// the worker's ranks are among those shown. Output is read only while Wait or Stop run, so a worker
// that prints more than a pipe holds waits. Thread rule: Start, Wait and Stop by the thread that
// lives longest (the death signal follows the thread that started the workers), all else from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/launch/cpu_starvation.h"
#include "tools/launch/process_state.h"
#include "tools/launch/stalled_connections.h"

namespace weir::launch {

// The program that workers run. One of the user's (weir launch) inherits every variable, signals go
// to its process group, and its exit codes mean what the user knows.
enum class WorkerProgram : uint8_t { kWeir, kOfUser };

struct WorkerLaunch {
  std::vector<std::string> arguments;  // [0]: the program; never a secret
  std::string label;                   // "ranks 2-3"
  std::vector<RankId> ranks;
  HostId host = HostId(0);  // a supervisor of one host takes 0 alone
  std::vector<std::string>
      variables;  // "NAME=value": of its environment, beside the inherited ones
};

// A WorkerLook shows a worker as its host sees it.
struct WorkerLook {
  bool is_seen = true;  // false: its host does not answer, and the rest is not known
  ProcessState::Kind kind = ProcessState::Kind::kGone;
  std::vector<StalledConnection> stalled;  // the worker's connections that carry nothing
};

// The end of a worker. Asked: by SIGTERM or SIGINT; killed: by SIGKILL.
struct WorkerExit {
  WorkerId worker;
  int64_t pid = 0;
  int code = 0;    // exit code, if it exited
  int signal = 0;  // the signal that killed it, else 0
  // The signals that this supervisor had sent before (Signal, Stop). They tell the deaths that the
  // supervisor caused from others.
  enum class Sent : uint8_t { kNothing, kAsked, kKilled } sent = Sent::kNothing;
  int64_t time_ns = 0;                  // monotonic
  std::vector<std::string> last_lines;  // the last lines of its output, at most 20
  int64_t cpu_ms = 0;                   // processor time that the worker has used
  // Why the end of the worker is not known: the connection to its host is lost. Empty: the end is
  // known.
  std::string lost;
};
// Resets SIGCHLD, which a parent may have left ignored. With SIGCHLD ignored the system would
// discard the exits of this process's children.
void KeepExits();

std::string SignalText(int signal);            // "SIGKILL (9)"
std::string ExitText(const WorkerExit& exit);  // "exit code 66", "killed by SIGKILL (9)"

// With kIfPossible workers may start without their logs: a job goes on after a failure even if
// somebody has made its logs impossible meanwhile.
enum class Logs : uint8_t { kNeeded, kIfPossible };

struct SupervisorOptions {
  std::string log_directory;  // made if absent; one file per worker, "rank-2-3.log", appended to
  Logs logs = Logs::kNeeded;  // of the workers of Start; later workers have logs if possible
  std::vector<RankId> ranks_shown;  // empty: all
  int64_t grace_ms = 5000;          // between asking a worker to end and killing it
  // The time for a killed worker to be gone. A worker that a disk or driver holds needs longer.
  int64_t reap_ms = 1000;
  std::ostream* console = nullptr;  // must outlive the supervisor
  // A descriptor of the caller's (SignalWatch::descriptor), not owned, or -1. While the descriptor
  // is readable, Wait returns at once, and Stop does not wait for the grace to end. Take its
  // signals before such a call.
  int wake_descriptor = -1;
  WorkerProgram program = WorkerProgram::kWeir;
};

class Supervisor {
 public:
  // Kills the workers that are left, and waits for them as Stop does.
  virtual ~Supervisor() = default;
  // kUnavailable (W0092, W0093) if a process, or a log file that is needed, cannot be made. Then no
  // worker is left running.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(
      const IdVector<WorkerId, WorkerLaunch>& workers, SupervisorOptions options);

  // Writes to the worker's standard input and closes it; once per worker. Tell does not block:
  // bytes beyond the capacity of the pipe are written while Wait or Stop run. The bytes are wiped
  // once written. kUnavailable if the worker is gone. If the worker ends before it has read
  // everything, only its exit shows that.
  virtual absl::Status Tell(WorkerId worker, const std::string& bytes) = 0;

  // Starts a worker anew, with the arguments of its first start: for a worker that has ended, or
  // that this call kills. An end of the old process that Wait has not returned is forgotten. Then
  // Tell may be called once more. Called by the thread that calls Wait. kUnimplemented: this
  // supervisor cannot do that. kUnavailable (W0093): there is no process, and the worker does not
  // run. A log that cannot be opened is a warning on the console, and the worker runs without one.
  virtual absl::Status StartAgain(WorkerId worker);

  // Starts one more worker, and returns its number, the next one. A worker of the same label that
  // has ended may have written to the same log file. Called by the thread that calls Wait.
  // kUnimplemented, kUnavailable as in StartAgain; then the number is not used.
  virtual absl::StatusOr<WorkerId> StartMore(const WorkerLaunch& worker);

  // Serves output and ends until a worker ends, `limit_ms` have passed (negative: no limit), Wake
  // is called, or no worker is running. Returns each end once, in order of time, with all output of
  // the worker served; else nullopt. Exits seen at the same moment have the same time.
  virtual absl::StatusOr<std::optional<WorkerExit>> Wait(int64_t limit_ms) = 0;
  // Makes the Wait under way return, or else the next Wait.
  virtual void Wake() = 0;
  virtual int num_running() const = 0;
  virtual int64_t pid(WorkerId worker) const = 0;  // also after its end

  // Sends `signal` to every worker that runs.
  virtual void Signal(int signal) = 0;
  // Ends a worker by SIGKILL, if it runs, and those that it started in its process group. Returns
  // at once; Wait returns the exit.
  virtual void Kill(WorkerId worker) = 0;
  // Asks workers to end with SIGTERM (and wakes stopped workers, so that they receive it), kills
  // them after the grace, collects the workers that are gone within reap_ms, and returns the exits
  // not yet returned. The system may hold the other workers for ever; they are then still in
  // running().
  virtual std::vector<WorkerExit> Stop() = 0;
  // Call after Stop. Waits at most limit_ms for workers that were killed and are not gone, and
  // returns the exits.
  virtual std::vector<WorkerExit> Reap(int64_t limit_ms) = 0;
  virtual std::vector<WorkerId> running() const = 0;

  // Looks at workers and returns the looks in the same order. All hosts look at the same time, for
  // up to 0.5 s; a worker of a host that still owes an earlier look is not seen, unless that look
  // ends meanwhile. On its host the look takes up to 150 ms for each worker. Called by the thread
  // that calls Wait, or after Stop.
  virtual std::vector<WorkerLook> Look(const std::vector<WorkerId>& workers) = 0;
  // Looks as Look does, but reads only the state at this moment, once and without a wait:
  // kUninterruptible may last for that moment alone, and no connections are looked at.
  virtual std::vector<WorkerLook> Glance(const std::vector<WorkerId>& workers) = 0;
  // Returns the use of processors by a worker, at most 3 s old; nullopt if the worker is gone or
  // nothing is known yet. Returns at once; any thread.
  virtual std::optional<ProcessorUse> Use(WorkerId worker) = 0;

  // Returns what a worker has left in the memory that it was started with (OwnMemory in
  // worker_process.h): call after its end, and before it is started again. kNotFound if there is no
  // such memory, kResourceExhausted if it has more than `bytes_max` bytes, kUnavailable if its host
  // does not answer. Called by the thread that calls Wait, or after Stop.
  virtual absl::StatusOr<std::string> ReadMemory(WorkerId worker, int64_t bytes_max);

  virtual std::string log_path(WorkerId worker) const = 0;
  // From here on the output of workers goes to their files alone. Called by the thread that calls
  // Wait.
  virtual void HideOutput() = 0;
};

}  // namespace weir::launch
