// Worker processes on this machine: starts them, collects what they print, passes signals
// on, sees them end, and leaves nothing behind. It knows nothing of training; what a worker
// must know beyond its arguments is written to its standard input, once.
//
//   Start -> { Wait }* -> Stop
//
// A worker whose starter dies is killed by the system (PR_SET_PDEATHSIG), whatever killed it; what
// a worker itself starts in its process group is killed when the worker has ended.
// A worker has a process group of its own: a Ctrl-C reaches only the starter, which passes it on
// (signal_watch.h).
// Worker output (standard output and error, in the order printed): the bytes go to the worker's own
// file as they are, and lines to the console with "[rank 2-3] " in front, if its ranks are among
// those shown. Output is read while Wait or Stop run; a worker that prints more than a pipe holds
// waits for that. Thread rule: Start, Wait and Stop by the thread that lives longest (the death
// signal follows the thread that started the workers), all else from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

struct WorkerLaunch {
  std::vector<std::string> arguments;  // [0]: the program; never a secret
  std::string label;                   // "rank 2-3"
  std::vector<int> ranks;
};

// How a worker ended. Asked: by SIGTERM or SIGINT; killed: by SIGKILL.
struct WorkerExit {
  int worker = 0;
  int64_t pid = 0;
  int code = 0;    // exit code, if it exited
  int signal = 0;  // the signal that killed it, else 0
  // What this supervisor had sent it before (Signal, Stop): tells a death that it caused from
  // others.
  enum class Sent : uint8_t { kNothing, kAsked, kKilled } sent = Sent::kNothing;
  int64_t time_ns = 0;                  // monotonic
  std::vector<std::string> last_lines;  // what it printed last, at most 20
  int64_t cpu_ms = 0;                   // processor time that it has used
};
std::string SignalText(int signal);            // "SIGKILL (9)"
std::string ExitText(const WorkerExit& exit);  // "exit code 66", "killed by SIGKILL (9)"

struct SupervisorOptions {
  std::string log_directory;     // made if absent; one file per worker, "rank-2-3.log", appended to
  std::vector<int> ranks_shown;  // empty: all
  int64_t grace_ms = 5000;       // between asking a worker to end and killing it
  int64_t reap_ms =
      1000;  // for a worker that was killed to be gone; where a disk or driver holds it, it is not
  std::ostream* console = nullptr;  // must outlive the supervisor
  // A descriptor of the caller's (SignalWatch::descriptor), not owned, or -1. While it is readable
  // Wait returns at once, and Stop does not wait out the grace: take what is in it before.
  int wake_descriptor = -1;
};

class Supervisor {
 public:
  virtual ~Supervisor() = default;  // kills what is left, and waits for it as Stop does
  // kUnavailable (W0092, W0093) if a process or log file cannot be made; then none is left running.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(const std::vector<WorkerLaunch>& workers,
                                                           SupervisorOptions options);

  // Writes to worker w's standard input and closes it; once per worker. What the pipe does not hold
  // is written while Wait or Stop run, so this does not block. The bytes are wiped once written.
  // kUnavailable if the worker is gone; if it ends before it has read all, only its end tells.
  virtual absl::Status Tell(int worker, const std::string& bytes) = 0;

  // Serves output and ends until a worker ends (returned, each once, in order of time, with all of
  // its output served), `limit_ms` have passed (negative: no limit), it is woken, or none is
  // running (nullopt). Exits seen at the same moment have the same time.
  virtual absl::StatusOr<std::optional<WorkerExit>> Wait(int64_t limit_ms) = 0;
  // The Wait under way, or else the next one, returns.
  virtual void Wake() = 0;
  virtual int num_running() const = 0;
  virtual int64_t pid(int worker) const = 0;  // also after its end

  // Sends `signal` to every worker that runs.
  virtual void Signal(int signal) = 0;
  // Asks with SIGTERM (and wakes those that are stopped, so that they can hear it), kills after the
  // grace, collects those that are gone within reap_ms; returns the exits not yet returned. The
  // system may hold the others for ever: they are still running() then.
  virtual std::vector<WorkerExit> Stop() = 0;
  // After Stop: waits at most limit_ms for those that were killed and are not gone; returns the
  // exits.
  virtual std::vector<WorkerExit> Reap(int64_t limit_ms) = 0;
  virtual std::vector<int> running() const = 0;
  virtual std::string log_path(int worker) const = 0;
  // From here on what workers print goes to their files alone. By the thread that calls Wait.
  virtual void HideOutput() = 0;
};

}  // namespace weir
