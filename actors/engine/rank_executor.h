// One rank at work: the machines of its actors, the slots of its registers, the ready
// actors in order of priority, its device and its end of the transport. It performs
// the effects of the protocol; an engine (CAF's threads, or the simulator) says when.
//
//   engine: RaiseLimits -> RunUntilIdle | { StartReady, CollectCompletions, Poll }
//   here:   ready -> issued to a queue of the device -> done
//
// A device may take acts ahead. Then a token between actors of this rank means that the act which
// writes the slot has been issued: it is the position of that act in its queue, and a credit is the
// positions of the slot's last readers. Both are passed on at once, and before an act is issued its
// queue waits for what other queues have still to do to its slots. What leaves the rank (a message,
// a credit to another rank, a metric) waits until the host knows that the act is done. A device
// with a depth of one act does nothing ahead: all is passed on when the act is done.
//
// A COLLECTIVE waits for other ranks, so its effects are performed when all ranks of its group have
// come, and until then the rank does other acts. Where ranks meet at the host, its work on the
// device says that its operands are there, and then the rank meets the others (rank_collectives.h).
// Where a library does it on the device, its work is the operation, in a queue for collectives
// alone (stream_collectives.h), beside the acts that the depth allows. The collectives of a rank
// begin in the order of their planned starts, whatever is ready first (start_order.h).
//
// In steady state nothing is allocated, but by collectives. Not here: threads, sleeping, other
// ranks. Thread rule: one thread at a time, except num_sent/num_received, read at rest, and
// progress(), any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/feed.h"
#include "actors/engine/finite_watch.h"
#include "actors/engine/flight_ring.h"
#include "actors/engine/program_binding.h"
#include "actors/engine/rank_collectives.h"
#include "actors/engine/rank_options.h"
#include "actors/engine/ready_set.h"
#include "actors/engine/start_order.h"
#include "actors/engine/step_account.h"
#include "actors/engine/stream_collectives.h"
#include "actors/engine/turn_order.h"
#include "actors/plan/plan.h"
#include "actors/plan/register_count.h"
#include "actors/protocol/actor_machine.h"
#include "actors/protocol/slot_ledger.h"
#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/tick_clock.h"
#include "runtime/device/device.h"
#include "runtime/device/queue_clock.h"
#include "runtime/trace/act_record.h"
#include "runtime/transport/transport.h"

namespace weir::actors {

class RankExecutor final : private transport::MessageReceiver {
 public:
  // The state of the rank's thread, as the engine sets it.
  enum class Sleep : uint8_t { kAwake, kWaiting, kDone };

  // The work of a rank, as another thread sees it. Each number is right, but two numbers may belong
  // to neighbouring moments.
  struct Progress {
    int64_t acts = 0;   // done since the executor was made
    ActorId actor;      // that the device runs, if it runs one
    int64_t act = 0;    // its number, from 0
    int64_t since = 0;  // ticks
    Sleep sleep = Sleep::kDone;
  };

  // `plan`, `device` and `endpoint` must outlive the executor. Registers its edges at
  // the endpoint; once all ranks have, call Connect.
  static absl::StatusOr<std::unique_ptr<RankExecutor>> Create(
      const Plan* plan, device::Device* device, transport::TransportEndpoint* endpoint,
      RankExecutorOptions options);
  // Binds the edges and gives states their first values. May wait for ranks of other
  // processes, as the endpoint does.
  absl::Status Connect();

  // Every actor may do the acts of `steps` more steps.
  void RaiseLimits(int64_t steps);

  // Works until nothing is ready, nothing runs and no message is there, or `stop`.
  // An error is a fault of this rank; it stays.
  absl::Status RunUntilIdle(const std::atomic<bool>& stop);

  // The same in small pieces, for the simulator.
  int num_ready() const { return ready_.size(); }
  bool device_has_room() const { return num_running_ < depth_; }
  void StartReady(int k);     // the k-th best ready actor; precondition: the device has room
  void CollectCompletions();  // of the device
  // Returns whether all ranks have come to a meeting of this rank.
  bool HasEndedMeeting();
  // Lets another rank, which comes last to a meeting of this rank, call `hook`, which may come from
  // any thread. Null: none. At rest.
  void SetMeetingHook(std::function<void()> hook) { meeting_hook_ = std::move(hook); }
  // Ends the part of this rank in the groups whose operations are work of the device. At rest,
  // after the last run.
  void LeaveGroups();
  void CollectMeetings();  // finishes those to which all ranks have come
  absl::Status Poll();     // of the transport
  ActorId ready_actor(int k) const { return actor_at_place_[ready_.Nth(k)]; }
  // The act that was issued first of those that a queue of the device has not done. Precondition:
  // it has one.
  ActorId oldest_running(QueueId queue) const { return flights_[queue].oldest().act.actor; }
  // The act that was issued last of those that a queue of the device has not done. Precondition: it
  // has one.
  const Act& newest_running(QueueId queue) const { return flights_[queue].newest().act; }
  const absl::Status& fault() const { return fault_; }

  // A simulation runs one plan many times. Rewind restores everything, including the memory, as it
  // was at MarkBeginning. The trace and the device do not change.
  void MarkBeginning();
  void Rewind();
  // Returns a hash of everything that decides what may come next, including the memory's contents.
  uint64_t HashState() const;

  // From now on every act is looked at by `watch`, which must live until Unwatch, and has the step
  // that its own number and `step_shift` make: its data and random numbers are those of that step.
  // At rest.
  void Watch(FiniteWatch* watch, int64_t step_shift);
  void Unwatch();

  // Any thread; the executor must be connected.
  Progress progress() const;
  void SetSleep(Sleep sleep) { shown_.sleep.store(sleep, std::memory_order_relaxed); }

  bool all_done() const { return num_unfinished_ == 0; }
  int64_t num_sent() const { return num_sent_; }  // messages, tokens and credits
  int64_t num_received() const { return num_received_; }

  // Ok if every slot is free but those of initial tokens, as before the first step.
  absl::Status CheckAtRest() const;

  // The actor that must act before this one may, though it has all it needs, if there is one.
  ActorId TurnBefore(ActorId actor) const;

  const Plan& plan() const { return *plan_; }
  // Returns the depth of the plan, which does not count collectives that are work of the device.
  int depth() const { return depth_; }
  // Returns whether acts may work beside each other.
  bool takes_ahead() const { return depth_ > 1 || groups_ != nullptr; }
  QueueId queue_of(ActorId actor) const { return actors_[actor].queue; }
  // The actor of an act that runs, on the first queue that has one, if one runs.
  ActorId running_actor() const;
  const ActorMachine& machine(ActorId actor) const { return actors_[actor].machine; }
  const SlotLedger& ledger(RegisterId register_id) const { return registers_[register_id].ledger; }
  // Tokens of an outbound register that acts have written which the device has not done.
  int64_t NumLeaving(RegisterId register_id) const;
  char* SlotAddress(RegisterId register_id, int slot) const {
    return registers_[register_id].addresses[slot];
  }
  // Shows the bytes of a state, at rest. The view is valid until the next run or FillState.
  device::HostView ReadState(StateId state) const;
  // Lets `fill` write the state's bytes, at rest (DeviceMemory::Fill).
  absl::Status FillState(StateId state, absl::FunctionRef<absl::Status(char* host)> fill);
  transport::EdgeTraffic Traffic(RegisterId register_id) const {
    return endpoint_->Traffic(registers_[register_id].edge);
  }
  RankMemory memory() const { return memory_; }
  char* arena() const { return arena_.base(); }  // null: nothing is computed
  const trace::ActRing& trace() const { return trace_; }
  trace::ActRing* mutable_trace() { return &trace_; }  // at rest
  RankWork work() const;                               // read at rest
  transport::TransportEndpoint* endpoint() const { return endpoint_; }
  device::Device* device() const { return device_; }

 private:
  // Ports that an actor reads and writes, of registers with token_bytes.
  struct SizedPorts {
    std::vector<int32_t> inputs;
    std::vector<int32_t> outputs;
  };
  struct ActorRuntime {
    explicit ActorRuntime(ActorMachine m) : machine(std::move(m)) {}
    ActorMachine machine;
    RankExecutor* owner = nullptr;
    BoundProgram* program = nullptr;  // null: nothing to compute
    const PlanActor* plan = nullptr;
    int32_t place = 0;                // in ready_, of the next or running act
    bool in_order = false;            // has places or a stream
    bool rebinds = false;             // operands or the sizes of tokens differ from act to act
    const int32_t* places = nullptr;  // by micro-batch; null: always the same
    int32_t acts_per_step = 1;
    int32_t chunks = 1;
    int32_t every = 1;
    ActorKind kind = ActorKind::kCompute;
    TimePart work = TimePart::kCompute;  // of the time of its acts
    StreamId stream;                     // none: acts whenever it is ready
    QueueId queue{0};
    Act act;  // the next to be issued, or the one that is being issued
    int32_t act_in_step = 0;
    int64_t cost_ns = 0;
    bool is_long = false;   // as planned: what the endpoint holds back shall not wait for it
    bool measured = false;  // its last act was long: its CPU time is read
    std::shared_ptr<const SizedPorts> sized_ports;  // null: it has none
  };
  struct RegisterRuntime {
    explicit RegisterRuntime(SlotLedger l) : ledger(std::move(l)) {}
    SlotLedger ledger;  // unused if outbound
    RegisterSide side = RegisterSide::kLocal;
    bool is_sized = false;  // has token_bytes
    ActorId producer_actor;
    int32_t producer_port = -1;
    PortRef first_consumer;  // beside the others, since most registers have one
    std::vector<PortRef> other_consumers;
    std::vector<char*> addresses;  // by slot
    int64_t bytes = 0;
    int32_t slots = 1;
    EdgeHandle edge;
    EdgeId edge_id;
    // The slot and the number of the message that must come next: a token for an inbound register,
    // a credit for an outbound register.
    int32_t expected_slot = 0;
    int64_t expected_sequence = 0;
    int32_t num_outstanding = 0;  // outbound: tokens sent and not credited
    // A local register has these on a device with several queues. `written` has, by slot, the
    // position in the producer's queue of the act that wrote the slot last. `read` has, by slot and
    // then queue, the position of the slot's last reader on that queue.
    std::vector<int64_t> written;
    std::vector<int64_t> read;
    // The bytes of the token in each slot. Empty: every token fills its slot, or nothing is
    // computed.
    std::vector<int64_t> token_bytes;
  };

  // Progress, on a cache line that the rank's thread alone writes. Relaxed: nobody concludes
  // from one number anything about another, or about memory.
  struct alignas(64) Shown {
    std::atomic<int64_t> acts{0};
    std::atomic<ActorId> actor{ActorId()};
    std::atomic<Sleep> sleep{Sleep::kDone};  // until the first run
    std::atomic<int64_t> act{0};
    std::atomic<int64_t> since{0};
  };

  RankExecutor(const Plan* plan, device::Device* device, transport::TransportEndpoint* endpoint,
               RankExecutorOptions options);
  absl::Status MakeMemory();
  absl::Status MakeRegisters();
  absl::StatusOr<char*> AllocateLanding();
  absl::Status AddEdge(const PlanRegister& spec, RegisterRuntime& r);
  absl::Status MakeActors();
  void MakeStreams();
  absl::Status MakeCollectives();
  std::vector<PortSpec> InputSpecs(const PlanActor& actor) const;
  std::vector<PortSpec> OutputSpecs(const PlanActor& actor) const;
  PortSpec SpanSpec(const PlanPort& port, int64_t acts) const;
  absl::Status CheckBegin() const;
  void BindConstantSlots();
  void FindSizedTokens();
  void BindTokenBytes(ActorRuntime& actor);
  void NoteTokenBytes(const ActorRuntime& actor);
  void MakePlaces();

  int64_t Now() const {
    return options_.clock != nullptr ? options_.clock->NowNs() : TickClock::Now();
  }
  void AddReady(ActorRuntime& actor) {
    if (actor.in_order && !TakesPlace(actor)) return;  // comes with its turn
    actor.act.ready_ticks = now_;
    ready_.Add(actor.place);
  }
  ABSL_ATTRIBUTE_ALWAYS_INLINE void ShowAct(const Act& act);
  QueueId QueueOfDevice(QueueId of_plan) const;
  void Start(ActorRuntime& actor);
  bool TakesPlace(ActorRuntime& actor) const;
  void PassTurn(TurnOrder& stream);
  void BindSlots(ActorRuntime& actor);
  void BindPort(ActorRuntime& actor, const ActorMachine::Port& port, int index,
                void (BoundProgram::*bind)(int port, int token, char* address));
  static void RunBody(void* actor);
  ABSL_ATTRIBUTE_ALWAYS_INLINE absl::Status RunAct(ActorRuntime& actor);
  ABSL_ATTRIBUTE_ALWAYS_INLINE absl::Status RunProgram(ActorRuntime& actor);
  absl::Status FillFromFeed(ActorRuntime& actor);
  void CopyToOutput(ActorRuntime& actor);
  void TakeMetric(ActorRuntime& actor);
  char* StateAddress(StateId state) const;
  std::string Contents(const device::DeviceBlock& block) const;
  char* HeldSlot(const ActorMachine::Port& port) const {
    return registers_[port.register_id].addresses[port.held_slot];
  }
  void AwaitOthers(const ActorRuntime& actor);
  void AwaitWriter(QueueId queue, RegisterId register_id, int32_t slot);
  void AwaitReaders(QueueId queue, RegisterId register_id, int32_t slot);
  void Await(QueueId queue, device::QueuePosition position, WaitCause cause);
  void Finish(ActorRuntime& actor);
  void FinishIssue(ActorRuntime& actor, Flight& flight);
  void FinishFlight(QueueId queue);
  // Returns whether an act of the actor is a meeting at the host, once its work is done.
  bool Meets(const ActorRuntime& actor) const {
    return actor.kind == ActorKind::kCollective && collectives_ != nullptr;
  }
  // Returns whether the work of an act waits for other ranks.
  bool IsJoint(const ActorRuntime& actor) const {
    return actor.kind == ActorKind::kCollective && groups_ != nullptr;
  }
  // Acts that the device was given and has not done.
  int NumInFlight() const { return num_running_ + num_joint_; }
  absl::Status Work(const std::atomic<bool>& stop);
  absl::Status JoinGroups(const std::atomic<bool>& stop);
  void BeginMeeting(ActorRuntime& actor, Act act, int64_t takes);
  void FinishMeeting(const Act& act, TimePart wait);
  absl::Status CheckGroups();
  void PassCollective();
  void EndWaits(Flight& flight, device::QueuePosition done, int64_t end);
  static void EndWait(const AwaitedAct& awaited, int64_t end, Act* act);
  ABSL_ATTRIBUTE_ALWAYS_INLINE void BeginNextAct(ActorRuntime& actor, bool is_ready);
  void Record(ActorRuntime& actor, const Act& act, TimePart wait, int64_t end, int64_t bytes_sent);
  ABSL_ATTRIBUTE_ALWAYS_INLINE TimePart WaitOf(const WaitCause& cause) const;
  ABSL_ATTRIBUTE_ALWAYS_INLINE void MeasureAct(ActorRuntime& actor, const Act& act,
                                               trace::ActRecord& record);
  void ReportMetric(const Act& act, float value);
  ABSL_ATTRIBUTE_ALWAYS_INLINE int64_t Perform(const ActorRuntime& actor, const Act& act,
                                               const Effect& effect);
  ABSL_ATTRIBUTE_ALWAYS_INLINE void Deliver(RegisterRuntime& r, int32_t slot);
  int64_t Send(const ActorRuntime& actor, const Act& act, RegisterRuntime& r, const Effect& effect);
  ABSL_ATTRIBUTE_ALWAYS_INLINE void Release(RegisterRuntime& r, int32_t slot);
  std::string ActsUnderWay() const;
  void Fault(const absl::Status& status) {
    if (fault_.ok()) fault_ = status;
  }

  absl::Status OnToken(EdgeHandle edge, const transport::MessageHeader& header) override;
  absl::Status OnCredit(EdgeHandle edge, int32_t slot) override;

  const Plan* const plan_;
  device::Device* const device_;
  transport::TransportEndpoint* const endpoint_;
  const RankExecutorOptions options_;

  IdVector<ActorId, ActorRuntime> actors_;
  IdVector<RegisterId, RegisterRuntime> registers_;
  // An actor whose precedence differs from micro-batch to micro-batch has a place for each.
  std::vector<ActorId> actor_at_place_;
  std::vector<int32_t> micro_batch_places_;
  IdVector<StreamId, TurnOrder> streams_;
  StartOrder collective_order_;
  std::unique_ptr<RankCollectives> collectives_;  // null: as the options say, or there are none
  std::vector<Meeting> meetings_;                 // collectives that wait for other ranks
  IdVector<RegisterId, RegisterCount> counts_;    // before the first step
  int64_t next_step_ = 0;  // the first that no actor has been allowed to act in
  IdVector<EdgeHandle, RegisterId> register_of_edge_;
  ReadySet ready_;
  Effects effects_;
  const int depth_;       // of the device
  const int num_queues_;  // likewise
  const bool
      has_joint_queue_;  // the last queue of the device has the collectives, and nothing else
  IdVector<QueueId, FlightRing> flights_;
  IdVector<QueueId, int64_t> positions_;   // of the act that was issued last
  IdVector<QueueId, AwaitedAct> awaited_;  // what the act that is being issued waits for
  IdVector<QueueId, int64_t> num_done_;    // as the device said last
  int64_t num_issued_ = 0;
  device::QueueClock queue_clock_;
  int num_running_ = 0;
  int64_t num_unfinished_ = 0;
  int64_t num_sent_ = 0;
  int64_t num_received_ = 0;
  int64_t now_ = 0;  // ticks, as of the last event
  StepAccount account_;
  int64_t measured_ticks_ = 0, cpu_ns_ = 0;  // of the acts whose CPU time was read
  int64_t long_act_ticks_ = 0;  // an act of more is worth reading its CPU time; 0: none is
  bool has_edges_ = false;
  absl::Status fault_;
  struct Beginning;
  std::shared_ptr<Beginning> beginning_;  // null unless MarkBeginning was called

  KernelSet kernels_;
  device::DeviceBlock arena_;
  StatePlaces places_;
  device::DeviceBlock workspace_;                       // of each queue, one after another
  IdVector<QueueId, kernels::LaunchContext> launches_;  // empty: nothing is computed
  device::DeviceBlock staging_;
  device::DeviceBlock landing_;  // the transport's, or the device's; empty: in the arena
  std::vector<device::DeviceBlock> mapped_;  // the slots of other ranks that acts write themselves
  RankMemory memory_;
  std::vector<std::unique_ptr<BoundProgram>> programs_;
  std::vector<int64_t> kernel_ns_;      // of the act that ran last, for on_kernels
  const int64_t made_ns_, made_ticks_;  // the same moment, in both measures
  FiniteWatch* watch_ = nullptr;        // null: nobody looks
  int64_t step_shift_ = 0;              // of all actors, while somebody does
  trace::ActRing trace_;
  Shown shown_;
  std::function<void()> meeting_hook_;         // may be null
  std::unique_ptr<StreamCollectives> groups_;  // null: collectives are no work of the device
  int num_joint_ = 0;                          // acts of these that the device has not done
  IdVector<QueueId, int64_t> recorded_until_;  // the end of the last act in the trace
};

}  // namespace weir::actors
