"""Lists the mutants: what each does wrong, where it differs from the product, and which test kills it.

mutation.py defines the kinds of edits. The number of a mutant is its place in MUTANTS.
"""

from tests.chaos.mutation import CUDA_DEVICE_TEST, LEDGER_TEST, Before, Expression, Mutant, Statement

MACHINE = "actors/protocol/actor_machine.h"
MACHINE_SOURCE = "actors/protocol/actor_machine.cc"
SLOT_LEDGER = "actors/protocol/slot_ledger.h"
BODIES = "actors/engine/act_bodies.cc"
EXECUTOR = "actors/engine/rank_executor.cc"
EXECUTOR_HEADER = "actors/engine/rank_executor.h"
SETUP = "actors/engine/rank_setup.cc"
CUDA_DEVICE = "runtime/device/cuda/cuda_device.cc"
QUEUE_CLOCK = "runtime/device/queue_clock.h"
MESSAGE_LEDGER = "runtime/transport/message_ledger.cc"

# The actor protocol.
_MACHINE_MUTANTS = [
    Mutant("initial-token-forgotten", "A reader does not know of tokens that are there at first.", (
        Statement(MACHINE_SOURCE, "for (const PortSpec& spec : inputs) AddPort(spec);", """
            for (PortSpec spec : inputs) {
              spec.available = 0;
              AddPort(spec);
            }"""),)),
    Mutant("credit-off-by-one", "A producer begins with one slot more than there is.", (
        Statement(MACHINE_SOURCE, "for (const PortSpec& spec : outputs) AddPort(spec);", """
            for (PortSpec spec : outputs) {
              ++spec.available;
              AddPort(spec);
            }"""),)),
    Mutant("limit-off-by-one", "An actor does one act more than the steps have.", (
        Statement(MACHINE_SOURCE, "limit_ += acts;", "limit_ += acts + 1;"),)),
    Mutant("lost-wake-up", "An actor whose last missing thing is a credit is not made ready.", (
        Expression(MACHINE, "--missing_ == 0", "--missing_ == 0 && kind != WaitCause::Kind::kCredit"),)),
    Mutant("credit-lost-while-running", "A credit that comes during an act is not counted.", (
        Before(MACHINE, "++port.available;", "if (running_ && kind == WaitCause::Kind::kCredit) return false;"),)),
    Mutant("second-credit-lost", "A credit is not counted while another is unused.", (
        Before(MACHINE, "++port.available;", """
            if (port.available > 0 && kind == WaitCause::Kind::kCredit) return false;"""),)),
    Mutant("slots-do-not-go-round", "Every span uses the same slot.", (
        Statement(MACHINE, """
            port.next_slot +=
                port.next_slot + port.tokens < port.slots ? port.tokens : port.tokens - port.slots;""", ""),)),
    Mutant("accumulates-one-too-many", "A span of several acts ends one act late.", (
        Expression(MACHINE, "++port.position < port.period", "++port.position < port.period + (port.period > 1)"),)),
    Mutant("accumulates-one-too-few", "A span of several acts ends one act early.", (
        Expression(MACHINE, "++port.position < port.period", "++port.position < port.period - (port.period > 1)"),)),
    Mutant("phase-forgotten", "The first span of a port is as long as the others.", (
        Expression(SETUP, "(acts + port.phase) % port.period", "acts % port.period"),)),
    Mutant("span-in-one-slot", "All tokens of a span are looked for in its first slot.", (
        Expression(MACHINE, "held_slot + k < slots ? held_slot + k : held_slot + k - slots", "held_slot"),)),
    Mutant("writes-without-credit", "An act begins though no slot is free.", (
        Before(MACHINE, "if (port.available < port.tokens) {", "if (kind == Effect::Kind::kPublishToken) return;"),)),
    Mutant("slot-reused-too-early", "The first of several readers frees the slot.", (
        Expression(SLOT_LEDGER, "--readers_[slot] == 0", "--readers_[slot] == num_consumers_ - 1"),)),
]

# Performs the effects of an act, those of one kind, when the act begins, and not again when the act has ended.
def _too_early(kind):
    return (Before(EXECUTOR, "if (options_.clock != nullptr) now_ = Now();", f"""
                ActorMachine ahead = actor.machine;
                effects_.clear();
                ahead.OnActDone(&effects_);
                for (const Effect& effect : effects_) {{
                  if (effect.kind == Effect::Kind::{kind}) Perform(actor, actor.act, effect);
                }}"""),
            Before(EXECUTOR, "if (effect.kind == Effect::Kind::kReturnCredit) {", f"""
                if (effect.kind == Effect::Kind::{kind} && !actor.machine.running()) return 0;"""))


# The effects of the protocol on one rank.
_EXECUTOR_MUTANTS = [
    Mutant("ack-before-the-read-is-done", "Credits go back when the act begins.", _too_early("kReturnCredit")),
    Mutant("token-before-the-act-ends", "Tokens are published when the act begins.", _too_early("kPublishToken")),
    Mutant("token-told-twice", "The first consumer hears of each token twice.", (
        Before(EXECUTOR, "if (first.machine.OnToken(r.first_consumer.port)) AddReady(first);", """
            if (first.machine.OnToken(r.first_consumer.port)) AddReady(first);"""),)),
    Mutant("ack-twice", "A local producer gets each credit twice.", (
        Before(EXECUTOR, """
            if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
            return;
          }
          ++num_sent_;""", "producer.machine.OnCredit(r.producer_port);"),)),
    Mutant("credit-never-sent", "The last of several slots never comes back.", (
        Before(EXECUTOR, "if (r.side == RegisterSide::kLocal) { ActorRuntime& producer", """
            if (r.slots > 1 && slot == r.slots - 1) return;"""),)),
    Mutant("credit-to-the-wrong-edge", "Credits go to the next edge of the rank.", (
        Expression(EXECUTOR, "endpoint_->ReturnCredit(r.edge, slot)", """
            endpoint_->ReturnCredit(
                EdgeHandle(static_cast<int32_t>((r.edge.value() + 1) % register_of_edge_.size())), slot)"""),)),
    Mutant("arrival-order-operands", "An act takes its operands in the order in which they came.", (
        Before(EXECUTOR, "if (options_.clock != nullptr) now_ = Now();", """
            if (actor.program != nullptr && actor.machine.num_inputs() > 1) {
              const ActorMachine::Port& a = actor.machine.input(0);
              const ActorMachine::Port& b = actor.machine.input(1);
              if (registers_[a.register_id].bytes == registers_[b.register_id].bytes) {
                const bool b_came_last = actor.machine.last_cause().register_id == b.register_id;
                actor.program->BindInput(b_came_last ? 0 : 1, 0, HeldSlot(a));
                actor.program->BindInput(b_came_last ? 1 : 0, 0, HeldSlot(b));
              }
            }"""),)),
    Mutant("always-writes-slot-0", "A kernel is bound to the first slot whatever the span holds.", (
        Statement(BODIES, "actor.program->BindOutput(i, 0, registers_[port.register_id].addresses[port.held_slot]);",
                  "actor.program->BindOutput(i, 0, registers_[port.register_id].addresses[0]);"),)),
    Mutant("chunk-forgotten", "Every chunk counts as a micro-batch.", (
        Expression(EXECUTOR, "++act.chunk == actor.chunks", "++act.chunk > 0"),)),
    Mutant("error-dropped", "A rank goes on after an error of the transport.", (
        Statement(EXECUTOR_HEADER, "if (fault_.ok()) fault_ = status;", ""),)),
]

# The order of the works of a device.
_QUEUE_MUTANTS = [
    Mutant("queue-not-awaited", "An act reads and writes without a wait for what other queues do to its slots.", (
        Statement(EXECUTOR, "if (num_queues_ == 1) return;", "return;"),)),
    Mutant("leaves-when-issued", "Messages and credits leave a rank before the device has done the act.", (
        Statement(EXECUTOR, """
            if (r.side != RegisterSide::kLocal) {
              flight.leaving.push_back(effect);
              continue;
            }""", ""),)),
    Mutant("workspace-shared", "The kernels of all queues have one workspace.", (
        Statement(SETUP, "if (bytes > 0) workspace += bytes;", ""),)),
    Mutant("wait-remembered-too-far", "A queue that waited for one act counts as having waited for the next.", (
        Statement(QUEUE_CLOCK, "awaited = position.number;", "awaited = position.number + 1;"),)),
]

# The streams, events and pinned memory of a GPU.
_CUDA_MUTANTS = [
    Mutant("event-not-awaited", "A stream does not wait for the event of a position.", (
        Statement(CUDA_DEVICE, """
            Succeeds(api_->WaitEvent(waiting.stream_, awaited.WorkOf(position.number).end),
                     "cudaStreamWaitEvent");""", ""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("event-of-the-next-place", "A stream waits for an event that its work has not recorded.", (
        Statement(CUDA_DEVICE, """
            Succeeds(api_->WaitEvent(waiting.stream_, awaited.WorkOf(position.number).end),
                     "cudaStreamWaitEvent");""", """
            Succeeds(api_->WaitEvent(waiting.stream_, awaited.WorkOf(position.number + 1).end),
                     "cudaStreamWaitEvent");"""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("event-used-again-too-early", "An event is recorded again while its first work is still asked for.", (
        Expression(CUDA_DEVICE, "static_cast<size_t>(number - 1) % works_.size()", """
            static_cast<size_t>(number - 1) % ((works_.size() + 1) / 2)"""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("event-before-the-work", "The event of a work is recorded before the work.", (
        Before(CUDA_DEVICE, "work.run(work.context);", """
            Succeeds(api_->RecordEvent(queue.WorkOf(queue.num_launched_ + 1).end, queue.stream_),
                     "cudaEventRecord");"""),
        Statement(CUDA_DEVICE, """
            Succeeds(api_->RecordEvent(place.end, queue.stream_), "cudaEventRecord");""", "")),
           killed_by=CUDA_DEVICE_TEST),
    Mutant("pinned-memory-used-again-too-early", "What a queue fills is free before it is copied.", (
        Statement(CUDA_DEVICE, "held_.push_back({num_launched_ + 1, std::move(pinned), nullptr, 0});", """
            idle_.push_back(std::move(pinned));"""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("copied-out-when-issued", "What is copied out is read before the work is done.", (
        Statement(CUDA_DEVICE, "held_.push_back({num_launched_ + 1, *std::move(pinned), to, bytes});", """
            std::memcpy(to, pinned->base(), bytes);
            held_.push_back({num_launched_ + 1, *std::move(pinned), nullptr, 0});"""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("done-when-launched", "The host takes a work for done that the GPU has not done.", (
        Expression(CUDA_DEVICE, "result == CudaResult::kNotReady || !Succeeds(result, \"the work of a queue\")",
                   "result != CudaResult::kNotReady && !Succeeds(result, \"the work of a queue\")"),),
           killed_by=CUDA_DEVICE_TEST),
]

# Mutants of the rules by which a rank accepts messages of other ranks.
_LEDGER_MUTANTS = [
    Mutant("stale-epoch-accepted", "A message of the epoch before is let in.", (
        Statement(MESSAGE_LEDGER, "return of_job ? Verdict::kFenced : Verdict::kForeign;", """
            if (!of_job) return Verdict::kForeign;"""),
        Statement(MESSAGE_LEDGER, """
            if (!of_network) {
              return Wrong(*message, absl::StrCat("epoch ", identity_.epoch, ", role ", identity_.role),
                           absl::StrCat("epoch ", message->epoch, ", role ", message->role));
            }""", ""))),
    Mutant("another-job-accepted", "A message of another job is let in.", (
        Statement(MESSAGE_LEDGER, "return of_job ? Verdict::kFenced : Verdict::kForeign;", """
            if (of_job) return Verdict::kFenced;"""),)),
    Mutant("sequence-not-checked", "Messages of an edge are taken as they come.", (
        Before(MESSAGE_LEDGER, "if (ahead >= edge.arrivals.size()) {", """
            if (edge.arrivals[edge.head].state == Arrival::State::kNone) return absl::OkStatus();"""),
        Expression(MESSAGE_LEDGER, "message->number - edge.next_received", """
            [&edge] {
              uint32_t place = 0;
              while (edge.arrivals[(edge.head + place) % edge.arrivals.size()].state != Arrival::State::kNone) ++place;
              return place;
            }()"""))),
    Mutant("duplicate-accepted", "A message that came already is let in again.", (
        Before(MESSAGE_LEDGER, "if (ahead >= edge.arrivals.size()) {", "return absl::OkStatus();"),)),
    Mutant("short-payload-accepted", "The length of a payload is not compared.", (
        Expression(MESSAGE_LEDGER, "payload_bytes != behind", "false"),)),
    Mutant("payload-not-awaited", "A token is handed over before its bytes are there.", (
        Expression(MESSAGE_LEDGER, "arrival.state != Arrival::State::kComplete",
                   "arrival.state != Arrival::State::kComplete && arrival.state != Arrival::State::kReceiving"),)),
    # The simulator copies a message when it is sent, so the early use of the slot does no harm there.
    Mutant("slot-left-too-early", "A slot is used again before its last message has left.", (
        Expression(MESSAGE_LEDGER, "e.slots[arrival.message.header.slot].leaving", "false"),), killed_by=LEDGER_TEST),
]

MUTANTS = _MACHINE_MUTANTS + _EXECUTOR_MUTANTS + _QUEUE_MUTANTS + _CUDA_MUTANTS + _LEDGER_MUTANTS
