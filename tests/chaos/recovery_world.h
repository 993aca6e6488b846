// The world of the simulation of recovery: the processes of a job, the control plane between them,
// the disk, and what fails. Everything that happens is an event: a message arrives, a worker acts,
// a shard is written, the end of a process is noticed. The seed decides which event is next, and
// when a fault comes.
//
// The world stands in the places of Coordinator, Supervisor and Fleet. What these decide, it
// decides with the product's code: the fence of epochs (epoch_fence.h), the published values
// (published_values.h), whom a failure takes away and who starts anew (losses.h), on which host
// (host_places.h), and with which ranks if the mesh becomes smaller (mesh_change.h).
//
// The starter's code calls the world and blocks: Call and the other functions that wait let events
// happen until they are done. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/control/epoch_fence.h"
#include "runtime/control/published_values.h"
#include "tests/chaos/recovery_hosts.h"
#include "tests/chaos/recovery_worker.h"
#include "tests/disk/process_files.h"
#include "tests/disk/simulated_disk.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/restart_policy.h"

namespace weir::chaos {

// What the starter does at a moment, and so where a fault may come.
enum class RecoveryPhase : uint8_t {
  kStart,     // all processes start
  kRun,       // steps
  kSave,      // shards are written, and the starter looks
  kCommit,    // the starter commits a checkpoint
  kNotice,    // a failure is noticed
  kHello,     // an epoch has begun, and new processes come
  kStanding,  // workers tell what they have
  kOpen,      // ranks open in the new epoch
  kMove,      // states move between workers
  kJoin,      // buddies join
  kLoad,      // states are read from files
  kGrow,      // all states are copied, before the mesh grows
};
const char* Name(RecoveryPhase phase);

struct RecoveryFault {
  enum class Kind : uint8_t {
    kKill,         // a worker
    kKillTwo,      // two workers at once
    kKillWriting,  // a worker, at an operation on the disk
    kFreeze,       // a worker says nothing any more, and acts again once it is cut off
    kLoseHost,     // a host, with all its workers
    kKillStarter,
    kPower,      // of the machine: all processes and what is not on disk
    kDiskError,  // the disk refuses one operation
  };
  Kind kind = Kind::kKill;
  RecoveryPhase phase = RecoveryPhase::kRun;
  int64_t after = 1;  // so many events or operations of the disk in that phase
  uint64_t who = 0;   // the worker or host, modulo their number
};
const char* Name(RecoveryFault::Kind kind);

class RecoveryWorld final : public WorkerWorld {
 public:
  struct Options {
    uint64_t seed = 1;
    std::vector<RecoveryFault> faults;  // each comes after the one before it
    // A worker that dies each time before it does a step; -1: none does.
    int64_t poisoned_step = -1;
    int poison_signal = 0;  // by which it dies
    bool tells = false;
  };
  explicit RecoveryWorld(const Options& options);
  ~RecoveryWorld() override;

  disk::SimulatedDisk* disk() { return &disk_; }
  // The disk as the starter sees it.
  store::FileSystem* starter_files() { return starter_files_.get(); }
  void Enter(RecoveryPhase phase);
  int64_t now() const { return now_; }  // the number of events so far

  // Begins the next life of the starter, when the last one has ended. Workers of the last one may
  // act a little longer.
  void StartStarter();
  // Whether the starter or the machine has failed. Then no call of the starter does anything.
  bool starter_is_gone() const { return is_gone_; }
  // Call before and after the starter uses the disk: a fault may come at one of its operations.
  void BeginStarterDisk();
  void EndStarterDisk();

  // The hosts of a start of the job, and of its workers.
  struct Places {
    hosts::HostList listed;  // empty: one machine
    IdVector<WorkerId, HostId> host_of;
    std::set<HostId> lost;  // in earlier starts
  };
  // Starts all processes of a job and waits for their hellos. kFailedPrecondition: a host that must
  // come is lost.
  absl::Status StartFleet(std::shared_ptr<const WorkerFacts> facts, uint32_t epoch,
                          const Places& places);
  // Ends all processes of the job. Returns "" or what Fleet::Finish would report as a failure.
  std::string EndFleet();
  // Sends commands[w] to worker w, and waits for all answers or the first error, as
  // Coordinator::CallEach.
  absl::StatusOr<IdVector<WorkerId, VirtualAnswer>> Call(
      const IdVector<WorkerId, VirtualCommand>& commands);
  absl::StatusOr<IdVector<WorkerId, VirtualAnswer>> CallAll(const VirtualCommand& command);
  // As Fleet::ReportLoss; nullopt: no process was lost.
  std::optional<launch::JobFailure> ReportLoss();
  // As Fleet::ForeseeReplacement.
  struct Foreseen {
    bool have_places = true;
    int ranks_left = 0;
    std::vector<WorkerId> lost;
  };
  Foreseen Foresee() const;
  // These do what the functions of Fleet with their names do.
  std::vector<WorkerId> WorkersAway() const;
  bool CanGrow() const;
  void SeekLostHosts();
  absl::Status BeginGrowth();
  // As Fleet::BeginEpoch, Fleet::Spread and Fleet::DismissIdle.
  enum class Replace : uint8_t { kAll, kNone };
  absl::Status BeginEpoch(Replace replace);
  absl::StatusOr<IdVector<WorkerId, std::vector<RankId>>> Spread(int num_ranks) const;
  void SetFacts(std::shared_ptr<const WorkerFacts> facts) { facts_ = std::move(facts); }
  void DismissIdle();
  // The workers of the job, and what Fleet tells of them and of its hosts. num_workers() counts
  // those, too, that have left the job.
  const std::vector<WorkerId>& workers() const { return workers_; }
  size_t num_workers() const { return processes_.size(); }
  int num_ranks_at_start() const;
  int NumRanksLeft() const;
  const RecoveryHosts& hosts() const { return hosts_; }
  IdVector<WorkerId, std::string> HostNames() const;
  // Returns the number of a worker's process; 0: it does not live.
  int64_t ProcessOf(WorkerId worker) const;
  // Returns the worker itself; null: its process does not live.
  const VirtualWorker* Find(WorkerId worker) const;
  uint32_t epoch() const { return epoch_; }
  const VirtualGroup* GroupOf(WorkerId worker) const;

  // The first thing that happened and may never happen; empty: nothing did.
  const std::string& violation() const { return violation_; }
  const std::vector<std::string>& story() const { return story_; }
  void TellStarter(const std::string& what);
  int64_t num_faults() const { return num_faults_; }  // that came
  int64_t num_hosts_lost() const { return num_hosts_lost_; }
  int64_t num_moved() const { return num_moved_; }        // workers that started on another host
  int64_t num_fenced() const { return num_fenced_; }      // messages that were refused
  int64_t num_poisoned() const { return num_poisoned_; }  // deaths at the poisoned step

  // What workers do (WorkerWorld).
  void Answer(WorkerId worker, int64_t call, uint32_t epoch, VirtualAnswer answer) override;
  void Publish(WorkerId worker, uint32_t epoch, const std::string& key,
               const std::string& value) override;
  void Fetch(WorkerId worker, uint32_t epoch, const std::string& key, int64_t request) override;
  void Carry(WorkerId from, WorkerId to, uint32_t epoch, int64_t step,
             const std::string& piece) override;
  int64_t NewGroupId() override { return ++num_groups_; }
  const VirtualGroup* FindGroup(int64_t id) const override;
  uint64_t Draw(uint64_t bound) override;
  void Violate(const std::string& what) override;
  bool tells() const override { return options_.tells; }
  void Tell(WorkerId worker, const std::string& what) override;

 private:
  struct ToWorker {
    enum class Kind : uint8_t { kCommand, kEpoch, kValue } kind = Kind::kCommand;
    int64_t number = 0;  // of the call or request
    uint32_t epoch = 0;
    VirtualCommand command;
    std::string value;
  };
  struct ToStarter {
    enum class Kind : uint8_t { kAnswer, kPublish, kFetch } kind = Kind::kAnswer;
    int64_t number = 0;
    uint32_t epoch = 0;
    VirtualAnswer answer;
    std::string key, value;
  };
  // A piece of a copy on its way to the buddy of a worker.
  struct Piece {
    WorkerId from;
    int64_t from_process = 0;
    uint32_t epoch = 0;
    int64_t step = 0;
    std::string bytes;
  };
  struct Process {
    int64_t id = 0;  // as a process number of the system
    WorkerId index;
    std::unique_ptr<disk::ProcessFiles> files;  // outlives worker
    std::unique_ptr<VirtualWorker> worker;      // null: the process has ended
    bool is_frozen = false;
    bool has_said_hello = false;
    bool is_connected = false;
    std::string activity;  // when it failed
    int signal = 0;        // by which it died
    std::deque<ToWorker> in;
    std::deque<ToStarter> out;
    std::deque<Piece> pieces;
  };
  struct Hello {
    WorkerId worker;
    uint32_t epoch = 0;
    int64_t process = 0;
  };
  // Something that the starter's side has not noticed yet.
  struct Notice {
    launch::FailureEvent::Kind kind = launch::FailureEvent::Kind::kExit;
    WorkerId worker;
    int64_t process = 0;
    HostId host;  // that is lost; then there is no worker
  };
  enum class Presence : uint8_t { kAwaited, kConnected, kLost };
  struct Pending {  // a call under way
    int64_t number = 0;
    IdVector<WorkerId, std::optional<VirtualAnswer>> answers;
    size_t num_missing = 0;
    absl::Status error;
  };
  enum class Event : uint8_t {
    kHear,
    kAct,
    kWrite,
    kSend,
    kTakePiece,
    kSay,
    kHello,
    kGreet,
    kNotice,
    kTakeLost,
    kHostComes,
    kEnd
  };

  // Lets one event happen. Returns false if nothing can happen any more, or the starter is gone.
  bool Step();
  void Do(Event event, Process* process);
  // Waits until `is_done` returns true. Returns false if the starter is gone or nothing happens.
  template <typename IsDone>
  bool Await(const char* what, const IsDone& is_done);
  // Waits until all workers have said hello. At one of so many looks the time for that is over.
  absl::Status WaitForHellos(uint64_t looks);
  // Fails the workers whose time to say hello is over.
  void FailSilent();
  bool IsSilent(WorkerId worker) const;
  void AwaitWhoComes();

  std::unique_ptr<Process> StartProcess(WorkerId worker);
  absl::Status StartOneAnew(WorkerId worker, const std::vector<WorkerId>& starting);
  absl::Status TakePlaces(const std::vector<WorkerId>& starting);
  void Leave(const std::vector<WorkerId>& gone);
  bool IsOfJob(WorkerId worker) const;
  std::vector<WorkerId> WorkersToStart() const;
  bool AllAreThere() const;
  absl::Status AwaitWatcher();
  void OpenEpoch();
  void AnnounceEpoch();
  void FailToCome(launch::FailureEvent::Kind kind, WorkerId worker, const std::string& reason);
  void HostComes();
  void Kill(Process* process, const std::string& how, int signal);
  void Kill(Process* process, const std::string& how);
  void LoseHost(uint64_t who);
  void LoseStarter(bool loses_power);
  void Hear(Process* process);
  void Say(Process* process);
  void Greet();
  void TakePiece(Process* process);
  void NoticeFailure();
  void NoticeLostHost(HostId host);
  void ActOf(Process* process);
  void CheckDisk(Process* process);

  const RecoveryFault* NextFault() const;
  void CountTowardsFault();
  void Fire(const RecoveryFault& fault);
  Process* VictimOf(uint64_t who);
  std::string LabelOf(WorkerId worker) const;

  const Options options_;
  uint64_t random_;
  disk::SimulatedDisk disk_;
  std::unique_ptr<disk::ProcessFiles> starter_files_;
  std::shared_ptr<const WorkerFacts> facts_;
  IdVector<WorkerId, std::unique_ptr<Process>> processes_;
  std::vector<WorkerId> workers_;       // of the job
  IdVector<WorkerId, size_t> room_of_;  // for ranks
  RecoveryHosts hosts_;
  std::vector<HostId> sought_;                       // lost hosts that may come, or not
  std::vector<std::unique_ptr<Process>> lingering_;  // of a starter that is gone
  std::vector<VirtualGroup> gone_groups_;  // of processes that were killed, without values
  std::vector<Hello> hellos_;
  std::vector<Notice> notices_;
  std::vector<std::pair<Event, Process*>> choices_;  // reused by Step

  // The coordinator's and the fleet's.
  uint32_t epoch_ = 0;
  std::optional<control::EpochFence> fence_;
  control::PublishedValues values_;
  IdVector<WorkerId, Presence> presence_;
  std::vector<launch::FailureEvent> failures_, lost_;
  Pending call_;
  int64_t num_calls_ = 0;

  RecoveryPhase phase_ = RecoveryPhase::kStart;
  launch::FailureMoment moment_ = launch::FailureMoment::kStart;
  size_t next_fault_ = 0;
  int64_t counted_ = 0;  // events in the phase of the next fault
  bool is_gone_ = false, loses_power_ = false;
  Process* acting_ = nullptr;  // whose worker acts
  int64_t now_ = 0, num_processes_ = 0, num_groups_ = 0;
  int64_t num_hosts_lost_ = 0, num_moved_ = 0;
  int64_t num_faults_ = 0, num_fenced_ = 0, num_poisoned_ = 0;
  std::string violation_;
  std::vector<std::string> story_;
};

}  // namespace weir::chaos
