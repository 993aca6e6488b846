// Worker processes on this machine: starts them, collects what they print, passes signals
// on, sees them end, and leaves nothing behind. It knows nothing of training; what a worker
// must know beyond its arguments is written to its standard input, once.
//
//   Start -> { Wait }* -> Stop
//
// A worker whose starter dies is killed by the system (PR_SET_PDEATHSIG), whatever killed it.
// Worker output: every line goes to the worker's own file as it is, and to the console with
// "[rank 2-3] " in front, if its ranks are among those shown.
// Thread rule: Start, Wait and Stop by the thread that lives longest (the death signal follows
// the thread that started the workers), all else from any thread.
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

struct WorkerCommand {
  std::vector<std::string> arguments;  // [0]: the program; never a secret
  std::string label;                   // "rank 2-3"
  std::vector<int> ranks;
};

// How a worker ended.
struct WorkerExit {
  int worker = 0;
  int64_t pid = 0;
  int code = 0;    // exit code, if it exited
  int signal = 0;  // the signal that killed it, else 0
  int64_t time_ns = 0;  // monotonic
  std::vector<std::string> last_lines;  // what it printed last, at most 20
};
std::string ExitText(const WorkerExit& exit);  // "exit code 66", "killed by SIGKILL (9)"

struct SupervisorOptions {
  std::string log_directory;      // made if absent; one file per worker, "rank-2-3.log"
  std::vector<int> ranks_shown;   // empty: all
  int64_t grace_ms = 5000;        // between asking a worker to end and killing it
  std::ostream* console = nullptr;  // must outlive the supervisor
};

class Supervisor {
 public:
  virtual ~Supervisor() = default;  // kills what is left
  // kUnavailable if a process or log file cannot be made; then none is left running.
  static absl::StatusOr<std::unique_ptr<Supervisor>> Start(const std::vector<WorkerCommand>& workers, SupervisorOptions options);

  // Writes to worker w's standard input and closes it. kUnavailable if it is gone.
  virtual absl::Status Tell(int worker, const std::string& bytes) = 0;

  // Serves output and ends until a worker ends (returned, each once, in order of time), or
  // `limit_ms` have passed (nullopt).
  virtual absl::StatusOr<std::optional<WorkerExit>> Wait(int64_t limit_ms) = 0;
  virtual int num_running() const = 0;

  // Sends `signal` to every worker that runs.
  virtual void Signal(int signal) = 0;
  // Asks with SIGTERM, kills after the grace, collects all; returns the exits not yet returned.
  virtual std::vector<WorkerExit> Stop() = 0;
  virtual std::string log_path(int worker) const = 0;
};

}  // namespace weir
