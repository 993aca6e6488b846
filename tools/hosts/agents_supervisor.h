// The HostsSupervisor over agents. agents_supervisor.cc has the life of agents and workers,
// agents_start.cc has the starts of workers, and agent_questions.cc has what the supervisor asks of
// agents and what travels in files. Only these three and hosts_supervisor.cc include this header.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/agent.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "tools/hosts/frame_channel.h"
#include "tools/hosts/hosts_supervisor.h"
#include "tools/hosts/relayed_stream.h"
#include "tools/launch/wake_event.h"
#include "tools/launch/worker_output.h"
#include "tools/launch/worker_process.h"

namespace weir::hosts {

inline constexpr int64_t kAnswerMs = 2000;  // for an agent that lives
inline constexpr int64_t kCloseMs = 2000;   // for an agent whose workers have ended

// The order that tells an agent how the job ends.
proto::AgentOrder EndOrderOf(int exit_code);

// Waits until the other side has closed the channel, too.
void AwaitClose(FrameChannel* channel, int64_t end_ns);

class AgentsSupervisor final : public HostsSupervisor {
 public:
  AgentsSupervisor(IdVector<HostId, HostAgent> hosts, HostsSupervisorOptions options,
                   launch::OwnedDescriptor wake)
      : hosts_(std::move(hosts)),
        options_(std::move(options)),
        facts_(hosts_.size()),
        wake_(std::move(wake)) {}
  // Closes the channels, so that the agents end their workers and then themselves, waits for that,
  // and kills the commands whose agents do not.
  ~AgentsSupervisor() override;

  absl::Status StartAgents();
  absl::Status AwaitHellos();

  const IdVector<HostId, HostFacts>& facts() const override { return facts_; }
  IdVector<HostId, std::vector<AddressProbe>> Probe(const std::vector<std::string>& addresses,
                                                    int64_t limit_ms) override;
  IdVector<HostId, std::vector<std::string>> ListenForProbes() override;
  LinkSpeed Measure(HostId host, const std::string& address) override;
  IdVector<HostId, std::optional<int64_t>> ClockOffsetsNs() override;
  absl::Status StartWorkers(const IdVector<WorkerId, launch::WorkerLaunch>& workers) override;
  void TellEnd(int exit_code) override;
  absl::StatusOr<std::string> FetchFile(HostId host, const std::string& path,
                                        int64_t bytes_max) override;
  void RemoveFiles(const IdVector<HostId, std::vector<std::string>>& paths_of_hosts) override;
  absl::Status ShipFile(const std::string& from, const IdVector<HostId, std::string>& to) override;

  std::string LostText(HostId host) const override { return agents_[host].lost; }
  void ReachAgain(HostId host) override;

  absl::Status Tell(WorkerId worker, const std::string& bytes) override;
  absl::Status StartAgain(WorkerId worker) override;
  absl::Status StartAgainOn(WorkerId worker, HostId host) override;
  absl::StatusOr<std::optional<launch::WorkerExit>> Wait(int64_t limit_ms) override;
  void Wake() override { wake_.Wake(); }
  int num_running() const override { return static_cast<int>(running().size()); }
  int64_t pid(WorkerId worker) const override {
    MutexLock lock(&mutex_);
    return workers_[worker].pid;
  }
  void Signal(int signal) override;
  void Kill(WorkerId worker) override;
  std::vector<launch::WorkerExit> Stop() override;
  std::vector<launch::WorkerExit> Reap(int64_t limit_ms) override;
  std::vector<WorkerId> running() const override;
  std::vector<launch::WorkerLook> Look(const std::vector<WorkerId>& workers) override {
    return AskForLooks(workers, LookKind::kLook);
  }
  std::vector<launch::WorkerLook> Glance(const std::vector<WorkerId>& workers) override {
    return AskForLooks(workers, LookKind::kGlance);
  }
  std::optional<launch::ProcessorUse> Use(WorkerId worker) override;
  absl::StatusOr<std::string> ReadMemory(WorkerId worker, int64_t bytes_max) override;
  std::string log_path(WorkerId worker) const override {
    MutexLock lock(&mutex_);
    const Worker& of = workers_[worker];
    return absl::StrCat(hosts_[of.host].host, ":", of.log_path);
  }
  void HideOutput() override {
    shows_output_ = false;
    proto::AgentOrder order;
    order.mutable_hide();
    SendToAll(order);
  }

 private:
  enum class Listen { kToCaller, kToAgentsOnly };
  enum class LookKind { kLook, kGlance };

  // A host that keeps itself or another from answering, and what is known of it.
  struct SilentHost {
    HostId host;
    std::string found;
  };

  // A worker as this process knows it.
  struct Worker {
    HostId host;
    HostProcessId process;
    int64_t pid = 0;
    std::string log_path;
    bool running = false;
    bool told = false;
    launch::WorkerExit::Sent sent = launch::WorkerExit::Sent::kNothing;
    std::optional<launch::ProcessorUse> use;
    int64_t use_ns = 0;
  };

  // An agent and the command that leads to it, if one does: otherwise the descriptors of `command`
  // are not open. The serving thread alone uses `command` and `errors`; the mutex of the supervisor
  // guards the channel.
  struct Agent {
    Agent(launch::WorkerProcess started, FrameChannel to_agent, launch::WorkerOutput read)
        : command(std::move(started)), channel(std::move(to_agent)), errors(std::move(read)) {}

    launch::WorkerProcess command;
    FrameChannel channel;
    launch::WorkerOutput errors;
    // The stream of the channel, if it leads through another agent; guarded by the mutex.
    std::shared_ptr<RelayedStream> relayed;
    bool has_hello = false;
    bool has_started = false;  // has answered the order to start workers
    absl::Status start_status;
    std::optional<absl::Status> started_one;  // of the last request to start one
    std::string lost;                         // why the channel has ended; empty: it has not
    bool is_reached_again = false;            // a lost one, to which a new command leads
    // When its command was started, here or by a relay; below 0: it was not, or its silence since
    // then has had its consequence.
    int64_t tried_ns = -1;
    std::optional<launch::EndOfProcess> end;
    IdVector<HostProcessId, WorkerId> workers;  // also those that belong to another host now
    std::optional<proto::LookReport> look;
    bool owes_look = false;  // gets no order to look until it has answered the last one
    std::optional<proto::ProbeReport> probe;
    std::optional<proto::ListenReport> listen;
    std::optional<proto::ClockReport> clock;
    std::optional<proto::MeasureReport> measure;
    // The file that the last request fetches, and how the request has ended.
    std::string fetched;
    std::optional<absl::Status> fetch_status;
    std::optional<absl::Status> ship_status;  // of the last request
    bool has_removed = false;                 // what the last request names
  };

  std::vector<launch::WorkerLook> AskForLooks(const std::vector<WorkerId>& workers, LookKind kind);
  bool HasCome(HostId host) const;
  void GiveUpThoseThatMayLack();
  proto::StartOrder EmptyStart() const;
  absl::Status PrepareStart(HostId host);
  absl::Status StartStatusOf(HostId host);
  absl::Status Refused(HostId host, const absl::Status& status) const;
  absl::Status NoWorkersOf(HostId host);
  absl::Status StartCommand(HostId host);
  void StartRelayed(HostId host);
  void ReachItself(HostId host, const std::string& reason);
  void EndAttempt(Agent* agent);
  void TakeReturn(HostId host);
  bool IsReachedThrough(HostId child, HostId host) const;
  void PassOverSilent(int64_t silence_ns);
  void TakeRelay(HostId through, const proto::RelayReport& report);
  absl::StatusOr<bool> Serve(int64_t limit_ns, Listen listen);
  void ServeUntil(int64_t limit_ms, Listen listen, const std::function<bool()>& is_done);
  void SendTo(Agent* agent, const proto::AgentOrder& order);
  void SendToAll(const proto::AgentOrder& order);
  void AwaitAll(int64_t limit_ms, bool (*is_done)(const Agent& agent));
  bool AreAll(bool (*is_done)(const Agent& agent)) const;
  bool AreAllHosts(const std::function<bool(HostId host)>& holds) const;
  std::vector<pollfd> DescriptorsToPoll(Listen listen) const;
  void ShowOutput();
  void ReadErrors(Agent* agent);
  void ReadFrames(HostId host);
  void Take(HostId host, const proto::AgentReport& report);
  void TakeHello(HostId host, const proto::AgentHello& hello);
  void TakeStart(Agent* agent, const proto::StartReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeStartOne(Agent* agent, const proto::StartOneReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeExit(const Agent& agent, const proto::ExitReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeUse(const Agent& agent, const proto::UseReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AskTime(HostId host);
  SilentHost FindSilent(HostId host);
  absl::StatusOr<std::string> Fetch(HostId host, const proto::FetchOrder& fetch,
                                    const std::string& what);
  void TakeFetch(Agent* agent, const proto::FetchReport& report);
  bool ShipPiece(const proto::ShipOrder& piece, const IdVector<HostId, std::string>& to);
  void EndCommand(Agent* agent);
  std::string EndText(HostId host, const std::string& reason) const;
  void Lose(HostId host, const std::string& reason);
  void Drop(HostId host, const std::string& how);
  void LoseWorkers(HostId host);
  std::string LastText(const Agent& agent) const;
  Worker* WorkerOf(const Agent& agent, HostProcessId process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool BelongsTo(const Worker& worker, const Agent& agent) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return &agents_[worker.host] == &agent;
  }

  const IdVector<HostId, HostAgent> hosts_;
  const HostsSupervisorOptions options_;
  IdVector<HostId, HostFacts> facts_;
  launch::WakeEvent wake_;
  const MonotonicClock clock_;
  bool shows_output_ = true;
  std::string output_;  // of workers, received and not yet shown
  int64_t num_requests_ = 0;
  // For the serving thread: seen and not yet returned.
  std::deque<launch::WorkerExit> exits_;
  IdVector<WorkerId, launch::WorkerLaunch> launches_;  // the serving thread's
  WorkerId starting_;                                  // likewise: of the last request to start one

  mutable Mutex mutex_;
  // StartAgents fixes the number of agents, and an agent does not move.
  IdVector<HostId, Agent> agents_;
  IdVector<WorkerId, Worker> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::hosts
