// The engine for predictions: the same ranks and machines as the other engines run, under virtual
// time, as fast as can be. What is due next happens next; ready acts start at once, best first;
// nothing is drawn but jitter. Messages take what TimeNetwork says. An act takes the executor's
// cost_ns, or, on a device that measures, what it really took.
//
// A device has the queues and the depth of its plan. Acts of a queue follow one another, queues
// work beside each other, and an act begins when the acts of other queues have ended that its queue
// awaits. The host of a device that takes acts ahead has nothing else to do: it hears of a message
// and of the end of an act at once.
//
// Devices of a host may share cores: while more cores are busy than the host has, all its acts slow
// down together; while several are busy, each act as much as it depends on what cores share
// (options.busy_speed). Beside sim_engine.h, which meets every interleaving, this one meets a
// single one, of thousands of ranks.
//
//   device of depth 1   idle -> [wake] -> act -> act ... -> idle     messages are taken between
//   acts, as a rank's thread does
//
// Thread rule: as Engine; all on the caller's thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "actors/engine/engine.h"
#include "actors/engine/rank_executor.h"
#include "actors/engine/time_network.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/device/host_memory.h"
#include "runtime/device/thread_team.h"

namespace weir::actors {

// A device whose acts begin and end when the engine says so; it may run their bodies and tell how
// long they took.
class TimeDevice final : public device::Device {
 public:
  enum class Work : uint8_t {
    kCosted,    // an act takes its cost; its body runs at launch
    kMeasured,  // an act takes what its body took: of one thread the time it ran, of several that
                // on the wall
  };
  TimeDevice(Work work, int num_threads, int num_queues, int depth);

  const char* kind() const override { return "cpu"; }
  device::DeviceMemory& memory() override { return memory_; }
  int num_queues() const override { return static_cast<int>(queues_.size()); }
  device::DeviceQueue& queue(QueueId) override { return queue_; }
  int depth() const override { return depth_; }
  Launched Launch(const device::DeviceWork& work) override;
  int64_t NumDone(QueueId queue) override { return queues_[queue].num_done; }
  device::WorkTimes TimesOf(device::QueuePosition position) const override {
    return queues_[position.queue].times[IndexOf(position.number)];
  }
  void Await(QueueId queue, device::QueuePosition position) override;
  absl::Status fault() const override { return absl::OkStatus(); }
  device::ThreadTeam* team() override { return &team_; }

  // The following functions are for the engine.

  QueueId launched_queue() const { return launched_queue_; }  // of the act launched last
  int64_t launched_ns() const { return launched_ns_; }        // what that act takes
  // Returns whether a queue has a work to begin: one that was launched, after the queue's last work
  // and all works of other queues that the queue awaits for it.
  bool CanBegin(QueueId queue);
  void Begin(QueueId queue, int64_t now_ns);     // precondition: CanBegin
  void Complete(QueueId queue, int64_t now_ns);  // precondition: the queue's work has begun

 private:
  struct Queue {
    int64_t num_launched = 0;
    int64_t num_begun = 0;
    int64_t num_done = 0;
    // These keep the last `depth` works, by number: the times of each, and for each queue the work
    // that it awaits there.
    std::vector<device::WorkTimes> times;
    std::vector<int64_t> awaited;
  };
  size_t IndexOf(int64_t number) const {
    return static_cast<size_t>(number - 1) % static_cast<size_t>(depth_);
  }
  int64_t* AwaitedBy(Queue& queue, int64_t number) {
    return &queue.awaited[IndexOf(number) * queues_.size()];
  }

  const Work work_;
  const int depth_;
  device::HostMemory memory_;
  device::ImmediateQueue queue_{&memory_};
  device::ThreadTeam team_;
  IdVector<QueueId, Queue> queues_;
  QueueId launched_queue_{0};
  int64_t launched_ns_ = 0;
};

struct TimeEngineOptions {
  struct Host {
    int cores = 0;  // that its devices share; 0: enough
    // Speed of each of k busy cores beside one alone; the last stands for more. Empty: 1.
    std::vector<double> core_speed;
  };
  struct Device {
    int host = 0;
    int cores = 1;        // busy for each act while it runs
    int64_t wake_ns = 0;  // from a message's arrival at an idle device until it is seen
    double jitter = 0;    // standard deviation of an act's time, as a share of it
  };
  std::vector<Host> hosts;
  std::vector<Device> devices;  // of the ranks, in their order
  uint64_t seed = 1;            // of jitter
  int64_t settled_step =
      1;  // what RankTimes leave out: acts of steps before this, if there are others
  // Speed of an act while all cores of its host are busy, beside that of the act alone; null, or 0:
  // the host's core_speed.
  std::function<double(const Plan& plan, const PlanActor& actor)> busy_speed;
};

// The times of one rank by use, from the settled step on (of all steps if none are left). Time in
// which several queues work counts once: for an act that is no transfer, if there is one.
struct RankTimes {
  static constexpr int kNumPhases = static_cast<int>(ActorPhase::kWeightGradient) + 1;
  std::array<int64_t, kNumPhases> busy_ns{};  // by ActorPhase
  int64_t exposed_ns =
      0;  // idle until a token came, that had been sent: communication that no work hid
  int64_t waiting_ns = 0;  // idle otherwise: what it needed had not been sent
  int64_t acts = 0;
};

class TimeEngine final : public Engine {
 public:
  // All must outlive the engine. The i-th of ranks, devices and options.devices belong together;
  // the ranks' trace clock is `clock`, and they keep as many acts of their trace as they have
  // collectives, and one more.
  TimeEngine(std::vector<RankExecutor*> ranks, std::vector<TimeDevice*> devices,
             TimeNetwork* network, ManualClock* clock, TimeEngineOptions options);

  absl::Status RunSteps(int64_t steps) override;
  void Stop(absl::Status reason) override;

  const RankTimes& times(int i) const { return times_[i]; }
  // When the last act of each step ended that updates weights; in plans without such acts, the last
  // act.
  const std::vector<int64_t>& step_end_ns() const { return step_end_ns_; }
  int64_t num_events() const { return num_events_; }
  int64_t num_acts() const { return num_acts_; }
  // Equal for equal histories.
  uint64_t history_hash() const { return history_hash_; }

 private:
  struct Event {
    enum class Kind : uint8_t { kArrival, kWayIn, kWake, kActDone, kHost };
    int64_t at_ns;
    int64_t number;  // of equal times the one made first
    Kind kind;
    int32_t index;  // lane, rank or host
    // kActDone: the queue; kHost: version of its speed; kWayIn: how long the message takes there.
    int64_t detail;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.number > b.number;
    }
  };
  // An act that was launched and has not ended.
  struct LaunchedAct {
    int64_t work_ns = 0;
    ActorId actor;
    int64_t step = 0;
    WaitCause cause;  // of its launch
  };
  struct Queue {
    std::vector<LaunchedAct> acts;  // a ring
    int64_t num_launched = 0;
    int64_t num_ended = 0;
    bool works = false;  // on the oldest

    LaunchedAct& at(int64_t number) { return acts[static_cast<size_t>(number) % acts.size()]; }
    LaunchedAct& oldest() { return at(num_ended); }
  };
  struct Rank {
    RankExecutor* executor;
    TimeDevice* device;
    TimeEndpoint* endpoint;
    TimeEngineOptions::Device options;
    IdVector<RegisterId, EdgeHandle> edge_of_register;  // none: local
    IdVector<ActorId, char> ends_step;                  // a step is over when these have acted
    IdVector<ActorId, double> busy_speed;               // empty: none is given
    IdVector<QueueId, Queue> queues;
    int num_working = 0;  // of them
    bool waking = false;
    bool touched = false;
    int64_t accounted_ns = 0;  // the times of the rank are known up to here
    int64_t owed_ns = 0;       // for messages received; the next act pays
    int64_t num_recorded = 0;  // records of the trace that are accounted
    uint64_t num_draws = 0;
  };
  // A host whose cores are shared: what is left of its acts shrinks at their speeds, which change
  // as others come and go.
  struct Host {
    struct Running {
      double left_ns;     // that the act would take alone
      double busy_speed;  // 0: the host's
      double speed;
      int32_t rank;
      QueueId queue;

      double LeftNow() const { return std::max(0.0, left_ns) / speed; }
    };
    bool shared = false;
    TimeEngineOptions::Host options;
    int64_t as_of_ns = 0;
    int busy_cores = 0;
    int64_t version = 0;
    std::vector<Running> running;  // in the order of their start

    std::vector<Running>::iterator
    Next();  // that ends first, of equal ones the earliest; end(): none runs
  };

  void Push(int64_t at_ns, Event::Kind kind, int32_t index, int64_t detail = 0);
  void PushPosted();
  absl::Status Happen(const Event& event);
  absl::Status FinishAct(int32_t rank, QueueId queue);
  absl::Status Look(int32_t rank);
  void LaunchBest(int32_t rank);
  void BeginActs(int32_t rank);
  void BeginAct(int32_t rank, QueueId queue);
  void Touch(int32_t rank);
  int64_t Duration(Rank& rank);
  void AddToHost(int32_t rank, QueueId queue);
  void AdvanceHost(Host& host);
  void RescheduleHost(int32_t host);
  bool IsSettled(int64_t step) const {
    return step >= settled_step_ || steps_asked_ <= settled_step_;
  }
  void AccountWork(int32_t rank);
  void AccountIdle(int32_t rank, const LaunchedAct& next);
  void AccountActs(int32_t rank);
  absl::Status NoProgress() const;

  std::vector<Rank> ranks_;
  std::vector<Host> hosts_;
  IdVector<RankId, int32_t> place_of_rank_;
  TimeNetwork* const network_;
  ManualClock* const clock_;
  const uint64_t seed_;
  const int64_t settled_step_;
  std::vector<RankExecutor*> executors_;
  std::vector<RankTimes> times_;
  std::vector<int64_t> step_end_ns_;
  int64_t steps_asked_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::vector<int32_t> touched_, looked_at_;
  int64_t num_pushed_ = 0;
  int64_t num_events_ = 0;
  int64_t num_acts_ = 0;
  uint64_t history_hash_ = 0;
  absl::Status fault_;
  std::atomic<bool> stop_{false};  // looked at now and then; the mutex orders the reason
  Mutex stop_mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(stop_mutex_);
};

}  // namespace weir::actors
