// The processes of a job, on this machine or on several hosts, and the connections to them. A Fleet
// starts the workers, gives each worker its identity, watches that workers live and make progress,
// and reports the first failure at the end. A Fleet knows commands (proto/worker.proto) but not
// training, which fleet_runner.h knows.
//
//   Launch -> { Call }* -> Finish -> AwaitRemaining
//
// With `recovers`, a lost process does not end the job once AllowRecovery has been called. Calls
// then end with kUnavailable, and the job goes on in a new epoch (fleet_epochs.cc):
//
//   Call fails -> ReportLoss -> BeginEpoch -> { Call }*
//
// Workers that have left the job may come back in a later epoch (BeginGrowth).
//
// A Fleet notices a failure in five ways: a process ends (noticed at once), a process reports that
// it cannot go on (at once), a process does not say hello (hello_watch.h), a process no longer
// beats (after dead_after_ms), or no actor makes progress while steps run (after stuck_after_ms).
// Each failure ends the job: Calls return, and workers stop and leave. Time during which this
// process itself was stopped (Ctrl-Z) does not count. Thread rule: one thread calls; another
// thread, of the Fleet's own, starts and watches the processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/credentials.h"
#include "tools/console/console.h"
#include "tools/fleet/loss_outlook.h"
#include "tools/fleet/losses.h"
#include "tools/hosts/host_list.h"
#include "tools/hosts/hosts_supervisor.h"
#include "tools/hosts/starter_address.h"
#include "tools/launch/cpu_starvation.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/program_path.h"
#include "tools/launch/supervisor.h"
#include "tools/live/live_run.h"

namespace weir::fleet {

class HelloWatch;
class InputWatch;

struct FleetOptions {
  int processes = 1;  // 0: as many as the hosts have slots
  proto::OpenCommand::Lanes lanes = proto::OpenCommand::AUTOMATIC;
  enum class Checksums : uint8_t { kOff, kOn } checksums = Checksums::kOn;
  std::string log_base = "weir-logs";  // a folder per job is made in it
  // The number of the first epoch of this start of the job, from 1 on. Processes of earlier starts
  // have other numbers, so what they still send is dropped.
  uint32_t epoch = 1;
  // The time at which the run of the job began; monotonic. Later starts of the run have the same
  // time, and reports of failures count from it. 0: the run begins with this fleet.
  int64_t run_began_ns = 0;
  std::vector<RankId> ranks_shown;  // on the console; empty: all
  // 0: chosen for the number of workers (heartbeat.h).
  int64_t heartbeat_ms = 0;
  int64_t dead_after_ms = 0;
  int64_t stuck_after_ms = 60'000;
  int64_t grace_ms = 5000;
  // The path for the trace of the job, which is written even if the job fails. Empty: no trace.
  std::string trace;
  int64_t remaining_limit_ms = 10'000;
  std::string program = launch::kOwnProgramLink;  // of the workers; tests name another
  // The hosts of the job, and the way to the agent of each; empty: this machine alone.
  hosts::HostList listed_hosts;
  IdVector<HostId, hosts::HostAgent> hosts;
  IdVector<WorkerId, HostId> host_of;
  // A scheduler has started this process and sends signals to every process of the job.
  bool is_scheduled = false;
  // Other processes survive the loss of one.
  bool recovers = false;
  LossFacts loss;  // of a job that trains, without those of its ranks
  // The hosts at the end of listed_hosts that get no processes at the start. They, and free slots
  // of other hosts, take the place of hosts that are lost. Below the number of hosts.
  int spares = 0;
  // The hosts that were lost in an earlier start of the job. Spares take their place, and then they
  // need not come. Without enough spares they must.
  std::set<HostId> lost_hosts;
  // What happens to lost hosts whose place no other takes: they must come, or get no processes.
  enum class Lost : uint8_t { kMustCome, kLeftOut } lost = Lost::kMustCome;
  // The files that workers read: data of the job, weights, a checkpoint.
  std::vector<std::string> input_files;
  // The watch knows the input files as the run began; null: the job never starts again. The watch
  // must outlive the fleet.
  const InputWatch* inputs = nullptr;
  IdVector<RankId, int64_t> bytes_of_rank;  // the memory that each rank needs; empty: not known
  bool ships_inputs = false;                // hosts get copies of these files
  std::string address;    // at which the starter listens; empty: one that all hosts reach
  std::string interface;  // for tensors, on every host; empty: the one on the way to the starter
  console::Console* console = nullptr;  // must outlive the fleet; required
  live::LiveRun* live = nullptr;        // must outlive the fleet; null: no record is kept
};

class Fleet {
 public:
  // `ranks_of[w]` are the ranks of worker w. The constructor starts nothing.
  Fleet(IdVector<WorkerId, std::vector<RankId>> ranks_of, const FleetOptions& options);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Returns when all workers have said hello. kAborted: a process has ended. kUnavailable: a
  // process has not said hello in time. Finish reports both. After an error only Finish may be
  // called.
  absl::Status Launch();

  // Returns whether workers may have no files in common with this process.
  bool is_spread_over_hosts() const { return !options_.hosts.empty(); }
  // Returns the number of workers at the start of the job. Some may have left it since.
  int num_workers() const { return ranks_of_.next_id().value(); }
  // Returns the workers of the job, without those that have left it (Replace::kNone, Dismiss).
  const std::vector<WorkerId>& workers() const { return workers_; }
  const std::vector<RankId>& ranks_of(WorkerId worker) const { return ranks_of_[worker]; }
  const IdVector<WorkerId, std::vector<RankId>>& ranks_of() const { return ranks_of_; }
  // Returns the ranks by which reports and lines for people name the worker: those that it had in
  // the last step (NoteStepDone), or at the start of the job. After Spread they are of another mesh
  // than ranks_of.
  const std::vector<RankId>& known_ranks(WorkerId worker) const { return known_ranks_[worker]; }
  // Returns the name of the worker's host; empty if the job has one host.
  std::string HostOf(WorkerId worker) const;
  // Returns the hosts that are lost. Call after Finish.
  std::set<HostId> LostHosts() const;
  // Returns how many ranks had room on other hosts. Call after Finish.
  int num_ranks_left() const;
  // Returns how many ranks the workers had together at the start of the job.
  int num_ranks_at_start() const;
  // Returns whether no host takes the place of a lost one. Call after Finish.
  bool LacksHosts() const { return on_hosts_ != nullptr && !PlacesFromNowOn().ok(); }
  // Returns the path at which a worker finds the input file `path`.
  std::string PathOn(WorkerId worker, const std::string& path) const;
  const std::vector<std::string>& input_files() const { return options_.input_files; }
  // Sends a file or checkpoint folder that workers are to read from now on to all hosts, if inputs
  // are shipped and it is none yet. Errors are those of HostsSupervisor::ShipFile.
  absl::Status BringInput(const std::string& path);
  // Returns how many ranks all workers have together that share the cores of that worker's host.
  int num_ranks_on_host_of(WorkerId worker) const;
  int64_t clock_offset_ns(WorkerId worker) const {
    return coordinator()->Health()[worker].clock_offset_ns;
  }

  // kProgress: a command without progress counts as stuck. Steps must make progress, but loading
  // may take its time.
  enum class Watch : uint8_t { kNone, kProgress };
  // Sends the command to all workers (CallEach sends commands[w] to worker w) and returns the
  // answers. An error is the first error, with the ranks that reported it.
  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> Call(const proto::WorkerCommand& command,
                                                               Watch watch);
  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> CallEach(
      const IdVector<WorkerId, proto::WorkerCommand>& commands, Watch watch);

  // Says what the job does from now on, for reports of failures.
  void Enter(launch::FailureMoment moment);
  uint32_t epoch() const { return epoch_.load(); }
  // With `recovers`: from here on the processes that are not lost live on.
  void AllowRecovery() { may_recover_.store(options_.recovers); }
  // Call after AllowRecovery, between two Calls. Gives up the process of a worker that is slow, as
  // if it had failed: ReportLoss has it with the `evidence`. Returns kUnavailable.
  absl::Status GiveUp(WorkerId worker, const std::string& evidence);
  // Call after a Call has failed. Returns the report of the processes that were lost in this epoch;
  // empty if none was, and then the job has ended. Waits a moment for the news, and for the end of
  // processes that are ending too.
  launch::FailureReport ReportLoss();
  // Call after a report of ReportLoss. Tells what BeginEpoch will do with the lost processes.
  struct Replacement {
    absl::Status status;  // kFailedPrecondition (W0727): no host takes the place of a lost one
    std::string text;     // if ok: "the process of rank 1 starts anew", for people
    std::string lost;     // "the process of rank 1"
    int num_lost = 0;     // processes
    int num_others = 0;   // processes that are not lost
    int ranks_left = 0;   // for how many ranks the processes have room that are not lost
    std::set<HostId> lost_hosts;
    std::vector<WorkerId> workers;  // the lost ones
  };
  Replacement ForeseeReplacement();
  // Call after a report of ReportLoss. Begins the next epoch: the other processes leave the old
  // one, and the lost processes are killed and start anew, or, with Replace::kNone, leave the job.
  // Returns the lost workers: those that are new, once they have said hello. kUnavailable: another
  // process was lost meanwhile, or a process did not come, and ReportLoss has it.
  enum class Replace : uint8_t { kAll, kNone };
  absl::StatusOr<std::vector<WorkerId>> BeginEpoch(Replace replace = Replace::kAll);
  // Returns the workers of the start that have left the job, in order.
  std::vector<WorkerId> WorkersAway() const;
  // Returns whether workers have left the job, and there is a place for the process of each.
  bool CanGrow();
  // Begins to reach the lost hosts once more, and returns at once. CanGrow counts those that come.
  void SeekLostHosts();
  // Call after AllowRecovery, between two Calls, when all is well. Begins an epoch with all workers
  // of the start: those that have left start anew, and ranks_of is as it was then. Returns them,
  // once they have said hello. kFailedPrecondition: CanGrow does not hold, and nothing has changed.
  // kUnavailable: a process was lost, or did not come, and ReportLoss has it.
  absl::StatusOr<std::vector<WorkerId>> BeginGrowth();
  // Call after BeginGrowth, between two Calls. Gives up these processes as if they had failed:
  // ReportLoss has them with the reason. Returns kUnavailable.
  absl::Status GiveUpReturned(const std::vector<WorkerId>& returned, const std::string& reason);
  // Call between two Calls of an epoch in which ranks are not open yet. Spreads so many ranks over
  // the workers, in order, each with at most as many as it had at the start: from now on ranks_of
  // are these. A worker may have none. kFailedPrecondition: the workers have no room for them.
  absl::Status Spread(int num_ranks);
  // Call between two Calls, when the workers have done a step: known_ranks are those of the step.
  void NoteStepDone();
  // Returns the workers that were lost, or came back, since the last step that is done
  // (NoteStepDone), in all epochs that have begun since: they have left the job, or have a new
  // process.
  const std::set<WorkerId>& exchanged() const { return exchanged_; }
  // Lets the workers without ranks leave the job in order, and returns them.
  std::vector<WorkerId> DismissIdle();
  // Returns the number of control messages of other epochs that were refused.
  int64_t num_fenced() const { return coordinator()->num_fenced(); }

  // Records that the caller has the complete trace and writes it. If the job fails later, the
  // traces that its workers leave do not replace the complete trace, and a disk that refuses the
  // trace is not tried, and reported, a second time.
  void NoteTraceComplete() { trace_complete_ = true; }

  // Ends all workers, in good order if `status`, the outcome of the work with them, is ok. If a
  // process failed, rather than a command, the report names the process and the failure and stands
  // for `status`; otherwise the report is empty. If `status` is ok, the job has done its work, and
  // a process failed after that. If the job failed, the recordings of the workers, also of those
  // that were killed, become the trace, and the failures are marked in it. Does not wait for a
  // process that the system holds.
  launch::FailureReport Finish(const absl::Status& status);
  // Call after Finish, when its report has been shown. Waits at most remaining_limit_ms for
  // processes that were killed and that their hosts still show, and names on the console those that
  // remain.
  void AwaitRemaining();
  // Call last. Tells the agents of the job's hosts with which exit code the job ends.
  void TellEnd(int exit_code);

 private:
  // The three parts of Launch. StartWorkers starts the watching thread, which starts the processes.
  absl::Status StartWorkers();
  absl::StatusOr<std::unique_ptr<launch::Supervisor>> StartOnHosts(
      const IdVector<WorkerId, launch::WorkerLaunch>& launches,
      const launch::SupervisorOptions& options);
  absl::Status CheckMemory(const IdVector<HostId, hosts::HostFacts>& facts) const;
  absl::Status CheckWaysOf(hosts::HostsSupervisor* supervisor, const hosts::StarterAddress& address,
                           const IdVector<HostId, std::string>& names) const;
  absl::Status ShipInputs(hosts::HostsSupervisor* supervisor);
  absl::Status ShipInput(size_t index, hosts::HostsSupervisor* supervisor);
  void RemoveShipped(hosts::HostsSupervisor* supervisor);
  // The log directory as the hosts know it.
  std::string AbsoluteLogDirectory() const;
  absl::Status StartCoordinator();
  // Writes to the worker's process who it is, in the present epoch.
  absl::Status TellWorker(WorkerId worker);
  std::vector<WorkerId> LostWorkers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HostId HostIdOf(WorkerId worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether another process of this machine is ending, and its end is not known yet.
  bool AnotherIsEnding() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what a report of these failures is made of.
  launch::FailedJob FailedJobOf(std::vector<launch::FailureEvent> events,
                                launch::FailedJob::Ends ends) const;
  // Says which of these workers ReportLoss has not told of.
  void SayAlsoLost(const std::vector<WorkerId>& lost);
  // Lets the watching thread, which is the parent of the processes, do `act`. Returns when that is
  // done.
  void LetWatcherDo(std::function<void()> act) ABSL_LOCKS_EXCLUDED(mutex_);
  // The watching thread calls these, up to Foresee.
  absl::Status StartAnew(const std::vector<WorkerId>& lost, Replace replace)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave(const std::vector<WorkerId>& gone) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakePlaces(const std::vector<WorkerId>& starting) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status StartOneAnew(WorkerId worker, const std::vector<WorkerId>& starting)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<WorkerId> WorkersToStart() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<IdVector<WorkerId, HostId>> PlacesFromNowOn() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<IdVector<WorkerId, HostId>> PlacesOf(const std::vector<WorkerId>& workers,
                                                      const std::vector<WorkerId>& starting) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns for each worker whether its process runs and is connected.
  IdVector<WorkerId, bool> WhoIsThere() const;
  absl::Status CheckAllAreThere() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status StartReturning(const std::vector<WorkerId>& returning) ABSL_LOCKS_EXCLUDED(mutex_);
  Replacement Foresee() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes that the worker, which is to come, is no part of the new epoch.
  void FailToCome(WorkerId worker, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  launch::FailureEvent FailureToCome(launch::FailureEvent::Kind kind, WorkerId worker,
                                     const std::string& reason) const ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeFailureToCome(launch::FailureEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the workers of an epoch. kUnavailable as soon as the process of one is lost, or has
  // not said hello in time (hello_watch.h), which is a failure of that process then.
  absl::Status WaitForHellos() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for those alone whose processes run, whoever else is lost meanwhile.
  void AwaitWhoComes() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the workers that have not said hello, and whose processes run and are not lost. The
  // watching thread calls this.
  std::vector<WorkerId> SilentWorkers() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Looks at these workers, and notes the failures of those that the watch gives up. Returns
  // whether there are some.
  bool FailSilent(HelloWatch* watch) ABSL_LOCKS_EXCLUDED(mutex_);
  void DoRequest() ABSL_LOCKS_EXCLUDED(mutex_);

  // The watching thread calls these.
  void WatchProcesses();
  void TakeExit(const launch::WorkerExit& exit);
  void TakeLost();
  void ExplainLostHost(const launch::FailureEvent& lost) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExplainByLostHost(launch::FailureEvent* event) ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeTrouble(WorkerId worker, const std::string& bytes);
  std::vector<launch::StalledConnection> AwaitStalledConnections(
      const std::vector<WorkerId>& workers);
  // Returns the coordinator, which lives as long as the fleet; null before it is made.
  control::Coordinator* coordinator() const ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsStuck();
  int NumFrozen();
  void CheckProgress();
  void RecordWorkers();
  void TellWaits(std::vector<launch::FailureEvent>* events);
  void AddActivity(launch::FailureEvent* event);
  void ExplainSilence(launch::FailureEvent* event);
  void ExplainStandstill(launch::FailureEvent* event);
  void ExplainExit(const launch::WorkerExit& exit, launch::FailureEvent* event);
  std::vector<launch::RemainingWorker> Remaining() const;
  int64_t ExcuseMs(WorkerId worker);  // on the coordinator's thread
  void Fail(launch::FailureEvent event, const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // The file of the worker's part; empty: no trace is wanted.
  std::string TracePartOf(WorkerId worker) const;
  absl::StatusOr<std::string> ReadTracePart(WorkerId worker);
  absl::StatusOr<std::string> ReadKeptActs(WorkerId worker);
  std::string MarksOfFailures();
  void GatherTrace(const IdVector<WorkerId, int64_t>& clock_offset_ns);

  bool IsOfJob(WorkerId worker) const;
  // Returns the worker's ranks. Any thread.
  std::vector<RankId> RanksNow(WorkerId worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns "rank 3" for known_ranks. Any thread but watcher_ and the caller's takes LabelNow.
  std::string LabelOf(WorkerId worker) const;
  std::string LabelNow(WorkerId worker) const ABSL_LOCKS_EXCLUDED(mutex_);

  // watcher_ writes these three, under mutex_, while the caller waits. So both threads read them
  // without the mutex, and any other thread reads them under it.
  IdVector<WorkerId, std::vector<RankId>> ranks_of_;
  IdVector<WorkerId, std::vector<RankId>> known_ranks_;
  std::vector<WorkerId> workers_;             // of the job, in order
  const IdVector<WorkerId, size_t> room_of_;  // the number of ranks of each worker at the start
  FleetOptions options_;
  std::string job_id_;
  MonotonicClock clock_;
  const int64_t run_began_ns_;
  std::optional<control::JobAuthority> authority_;  // from Launch on
  std::atomic<uint32_t> epoch_;                     // changed by watcher_
  std::atomic<bool> may_recover_{false};
  launch::CpuStarvation starvation_;  // the coordinator's thread's
  std::string log_directory_;
  hosts::StarterAddress starter_address_{"127.0.0.1", {}, {}};
  IdVector<HostId, HostId> machine_of_;  // the first host that shares the cores of each
  bool trace_complete_ = false;
  bool has_told_loss_ = false;          // a report names the folder of the logs, which then stays
  console::ConsoleLines worker_lines_;  // written to by supervisor_

  std::unique_ptr<launch::Supervisor> supervisor_;  // made and used by watcher_, but for Wake
  hosts::HostsSupervisor* on_hosts_ = nullptr;      // supervisor_, if the job has hosts
  std::thread watcher_;
  std::atomic<bool> ending_{false};
  std::function<void()> at_end_;  // what watcher_ does last; set before ending_
  std::atomic<bool> watch_progress_{false};
  std::atomic<int64_t> watch_since_ns_{0};

  mutable Mutex mutex_;
  IdVector<WorkerId, HostId> host_of_ ABSL_GUARDED_BY(mutex_);  // changed by watcher_
  ProcessEpochs process_epochs_ ABSL_GUARDED_BY(mutex_);
  CondVar failed_;
  std::vector<launch::FailureEvent> failures_ ABSL_GUARDED_BY(mutex_);  // of this epoch
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;  // a failure has ended the job
  launch::FailureMoment moment_ ABSL_GUARDED_BY(mutex_);
  // The caller's: the workers that ReportLoss has told of, and those whose new processes have not
  // all said hello.
  std::vector<WorkerId> told_lost_, anew_;
  std::set<WorkerId> exchanged_;                           // likewise the caller's
  std::function<void()> request_ ABSL_GUARDED_BY(mutex_);  // for watcher_; null: none
  // The workers that the coordinator lost, or that told of a failure; not yet taken.
  std::vector<launch::FailureEvent> lost_ ABSL_GUARDED_BY(mutex_);
  bool is_explaining_ ABSL_GUARDED_BY(mutex_) = false;  // losses that were taken from lost_
  // The loss of a worker's host, as the supervisor has found it.
  std::map<WorkerId, launch::FailureEvent> lost_hosts_ ABSL_GUARDED_BY(mutex_);
  // Destroyed first, because its thread uses the members above.
  std::unique_ptr<control::Coordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::fleet
