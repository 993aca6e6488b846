// The processes of a job on this machine and the lines to them: starts the workers, gives
// each its identity, watches that they live and make progress, and tells afterwards what went
// wrong first. It knows commands (proto/worker.proto), not training: fleet_runner.h does.
//
//   Launch -> { Call }* -> Finish -> AwaitRemaining
//
// Four ways to notice a failure: a process ends (at once), a process says that it cannot go on (at
// once), a process no longer beats (after dead_after_ms), nobody makes progress while steps run
// (after stuck_after_ms). Each ends the job: Calls return, workers stop and leave. Time that this
// process itself was stopped (Ctrl-Z) does not count. Thread rule: one thread calls; a thread of
// its own starts and watches the processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "runtime/base/clock.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/credentials.h"
#include "tools/console/console.h"
#include "tools/launch/cpu_starvation.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/supervisor.h"

namespace weir {

struct FleetOptions {
  int processes = 1;
  OpenCommand::Lanes lanes = OpenCommand::AUTOMATIC;
  enum class Checksums : uint8_t { kOff, kOn } checksums = Checksums::kOn;
  std::string log_base = "weir-logs";  // a folder per job is made in it
  std::vector<int> ranks_shown;        // on the console; empty: all
  int64_t heartbeat_ms = 1000;
  int64_t dead_after_ms = 4000;
  int64_t stuck_after_ms = 60'000;
  int64_t grace_ms = 5000;
  std::string trace;  // where the trace of the job is wanted, also if it fails; empty: nowhere
  int64_t remaining_limit_ms = 10'000;
  std::string program = "/proc/self/exe";  // of the workers; tests name another
  Console* console = nullptr;              // must outlive the fleet; required
};

class Fleet {
 public:
  // `ranks_of[w]` are worker w's. Starts nothing yet.
  Fleet(std::vector<std::vector<int>> ranks_of, const FleetOptions& options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Returns when all workers have said hello. After an error only Finish may be called.
  absl::Status Launch();

  int num_workers() const { return static_cast<int>(ranks_of_.size()); }
  const std::vector<int>& ranks_of(int worker) const { return ranks_of_[worker]; }
  int64_t clock_offset_ns(int worker) const {
    return coordinator_->Health()[worker].clock_offset_ns;
  }

  // Whether standing still means being stuck while the command runs: steps must go on, loading may
  // take its time.
  enum class Watch : uint8_t { kNone, kProgress };
  // The command to all workers (or commands[w] to worker w); the answers by worker. The first
  // error, with the ranks it came from.
  absl::StatusOr<std::vector<WorkerAnswer>> Call(const WorkerCommand& command, Watch watch);
  absl::StatusOr<std::vector<WorkerAnswer>> CallEach(const std::vector<WorkerCommand>& commands,
                                                     Watch watch);

  // The trace has been written in full: should the job fail after all, what its workers leave does
  // not replace it.
  void NoteTraceWritten() { trace_written_ = true; }

  // Ends all workers, in order if `status` (of what was done with them) is ok. If a process failed
  // rather than a command, the report says which and how, and stands for `status`; else it is
  // empty. If the job failed, what the surviving workers recorded becomes the trace. Waits for no
  // process that the system does not let go of.
  FailureReport Finish(const absl::Status& status);
  // After Finish, and after its report was shown: waits for processes that were killed and are
  // still there, at most remaining_limit_ms, and says on the console which remain.
  void AwaitRemaining();

 private:
  // The three parts of Launch. StartWorkers starts the watching thread, which starts the processes.
  absl::Status StartWorkers();
  absl::Status StartCoordinator(JobAuthority* authority);
  absl::Status TellWorkers(JobAuthority* authority);

  // On the watching thread.
  void WatchProcesses();
  void TakeExit(const WorkerExit& exit);
  void TakeLost();
  void TakeTrouble(int worker, const std::string& bytes);
  bool IsStuck();
  int NumFrozen();
  void CheckProgress();
  std::string LogOf(int worker) const;
  void TellWaits(std::vector<FailureEvent>* events);
  void AddActivity(FailureEvent* event);
  void ExplainSilence(FailureEvent* event);
  void ExplainStandstill(FailureEvent* event);
  void ExplainExit(const WorkerExit& exit, FailureEvent* event);
  std::vector<RemainingWorker> Remaining() const;
  int64_t ExcuseMs(int worker);  // on the coordinator's thread
  void Fail(FailureEvent event, const absl::Status& reason);
  std::string TracePartOf(int worker) const;  // where its part is; empty: no trace is wanted
  void GatherTrace(const std::vector<int64_t>& clock_offset_ns);

  const std::vector<std::vector<int>> ranks_of_;
  FleetOptions options_;
  std::string job_id_;
  MonotonicClock clock_;
  int64_t started_ns_ = 0;
  CpuStarvation starvation_;  // the coordinator's thread's
  std::string log_directory_;
  bool trace_written_ = false;
  ConsoleLines worker_lines_;  // written to by supervisor_

  std::unique_ptr<Supervisor> supervisor_;    // made and used by watcher_, but for Wake
  std::unique_ptr<Coordinator> coordinator_;  // made by the caller's thread
  std::thread watcher_;
  std::atomic<bool> ending_{false};
  std::atomic<bool> watch_progress_{false};
  std::atomic<int64_t> watch_since_ns_{0};

  std::mutex mutex_;  // guards the rest, and the making of coordinator_
  std::condition_variable failed_;
  std::vector<FailureEvent> failures_;
  std::vector<FailureEvent> lost_;  // by the coordinator, or told by a worker; not yet taken
};

}  // namespace weir
