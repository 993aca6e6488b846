// The bodies of acts: the slots that an act works on, and the operations that it puts into its
// queue.
#include "absl/strings/str_cat.h"
#include "actors/engine/rank_executor.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::actors {
void RankExecutor::BindPort(ActorRuntime& actor, const ActorMachine::Port& port, int index,
                            void (BoundProgram::*bind)(int, int, char*)) {
  const std::vector<char*>& addresses = registers_[port.register_id].addresses;
  int32_t slot = port.held_slot >= 0 ? port.held_slot : port.next_slot;
  for (int32_t k = 0; k < port.tokens; ++k) {
    (actor.program->*bind)(index, k, addresses[slot]);
    slot = slot + 1 == port.slots ? 0 : slot + 1;
  }
}

void RankExecutor::BindTokenBytes(ActorRuntime& actor) {
  for (int32_t input : actor.sized_ports->inputs) {
    const ActorMachine::Port& port = actor.machine.input(input);
    const std::vector<int64_t>& bytes = registers_[port.register_id].token_bytes;
    for (int32_t k = 0; k < port.tokens; ++k)
      actor.program->SetTokenBytes(input, k, bytes[port.slot(k)]);
  }
}

// The slots that an act writes are free, so nobody reads the sizes of their last tokens any more.
void RankExecutor::NoteTokenBytes(const ActorRuntime& actor) {
  for (int32_t output : actor.sized_ports->outputs) {
    const ActorMachine::Port& port = actor.machine.output(output);
    RegisterRuntime& r = registers_[port.register_id];
    const int64_t bytes = actor.program->PayloadBytes(output, actor.act.chunk, r.bytes);
    for (int32_t k = 0; k < port.tokens; ++k) r.token_bytes[port.slot(k)] = bytes;
  }
}

void RankExecutor::BindSlots(ActorRuntime& actor) {
  const ActorMachine& machine = actor.machine;
  const bool first = machine.acts_done() == 0;  // perhaps in the midst of a span
  if (actor.sized_ports != nullptr) {
    BindTokenBytes(actor);
    NoteTokenBytes(actor);
  }
  // Nearly all ports have one token, which is bound without calls and loops: that is much of what a
  // hop costs.
  for (int i = 0; i < machine.num_inputs(); ++i) {
    const ActorMachine::Port& port = machine.input(i);
    if ((port.position != 0 && !first) || port.slots == port.tokens) continue;
    if (port.tokens == 1) {
      actor.program->BindInput(i, 0, registers_[port.register_id].addresses[port.held_slot]);
    } else {
      BindPort(actor, port, i, &BoundProgram::BindInput);
    }
  }
  for (int i = 0; i < machine.num_outputs(); ++i) {
    const ActorMachine::Port& port = machine.output(i);
    if (port.period > 1) actor.program->SetPosition(i, port.position);
    if ((port.position != 0 && !first) || port.slots == port.tokens) continue;
    if (port.tokens == 1) {
      actor.program->BindOutput(i, 0, registers_[port.register_id].addresses[port.held_slot]);
    } else {
      BindPort(actor, port, i, &BoundProgram::BindOutput);
    }
  }
}

void RankExecutor::Watch(FiniteWatch* watch, int64_t step_shift) {
  watch_ = watch;
  step_shift_ = step_shift;
  for (ActorRuntime& actor : actors_) actor.act.step += step_shift;
  for (const StateId state : plan_->states.ids())
    watch->LookAtState(plan_->states[state], ReadState(state).data());
}

void RankExecutor::Unwatch() {
  for (ActorRuntime& actor : actors_) actor.act.step -= step_shift_;
  watch_ = nullptr;
  step_shift_ = 0;
}

inline absl::Status RankExecutor::RunProgram(ActorRuntime& actor) {
  const BoundProgram::Act act{actor.act.step, actor.act.micro_batch, actor.act.chunk};
  const kernels::LaunchContext& launch = launches_[actor.plan->queue];
  if (watch_ != nullptr) return actor.program->RunWatched(act, launch, watch_);
  if (!options_.on_kernels) return actor.program->Run(act, launch);
  WEIR_RETURN_IF_ERROR(actor.program->RunTimed(act, launch, &kernel_ns_));
  options_.on_kernels(*actor.plan, kernel_ns_);
  return absl::OkStatus();
}

inline absl::Status RankExecutor::RunAct(ActorRuntime& actor) {
  if (IsJoint(actor))
    return groups_->Issue(*actor.plan, *actor.program, positions_[actor.queue] + 1);
  // The work of another collective on the device says that its operands are there.
  if (actor.kind == ActorKind::kCollective) return absl::OkStatus();
  if (watch_ != nullptr) {
    watch_->BeginAct(*actor.plan, actor.act.number, actor.act.micro_batch, actor.act.chunk);
  }
  if (actor.program != nullptr) return RunProgram(actor);
  if (options_.compute == RankExecutorOptions::Compute::kSkip) return absl::OkStatus();
  switch (actor.kind) {
    case ActorKind::kSource: return FillFromFeed(actor);
    case ActorKind::kSend: CopyToOutput(actor); break;
    case ActorKind::kSink: TakeMetric(actor); break;
    case ActorKind::kCompute:
    case ActorKind::kCollective: break;
  }
  return absl::OkStatus();
}

void RankExecutor::RunBody(void* context) {
  ActorRuntime& actor = *static_cast<ActorRuntime*>(context);
  RankExecutor& self = *actor.owner;
  const absl::Status done = self.RunAct(actor);
  if (!done.ok()) self.Fault(At(absl::StrCat("rank ", self.plan_->rank), done));
}

absl::Status RankExecutor::FillFromFeed(ActorRuntime& actor) {
  const PlanActor& spec = *actor.plan;
  const auto fill = [&](char* host) -> absl::Status {
    const absl::Status filled = options_.feed->Fill(spec.feed, actor.act.step,
                                                    actor.act.micro_batch, spec.feed_slice, host);
    if (!filled.ok()) {
      return CausedBy(filled, "W0514",
                      absl::StrCat("actor '", spec.name, "', feed '", spec.feed, "'"));
    }
    if (watch_ != nullptr) watch_->AfterFeed(host);
    return CheckFed(*options_.feed, spec, actor.act.step, actor.act.micro_batch, host);
  };
  return device_->queue(actor.queue)
      .Fill(HeldSlot(actor.machine.output(0)), spec.feed_slice.bytes(), fill);
}

// A SEND without a program sends what it gets.
void RankExecutor::CopyToOutput(ActorRuntime& actor) {
  if (actor.machine.num_inputs() == 0) return;
  const ActorMachine::Port& to = actor.machine.output(0);
  device_->queue(actor.queue)
      .Copy(HeldSlot(to), HeldSlot(actor.machine.input(0)), registers_[to.register_id].bytes);
}

void RankExecutor::TakeMetric(ActorRuntime& actor) {
  if (options_.sink == nullptr) return;
  float* const metric = &flights_[actor.queue].next().metric;
  device_->queue(actor.queue).CopyOut(metric, HeldSlot(actor.machine.input(0)), sizeof(*metric));
}

}  // namespace weir::actors
