"""Lists the mutants: what each does wrong, where it differs from the product, and which test kills it.

mutation.py defines the kinds of edits. The number of a mutant is its place in MUTANTS.
"""

from tests.chaos.mutation import CUDA_DEVICE_TEST, LEDGER_TEST, RECOVERY_TEST, Before, Expression, Mutant, Statement

MACHINE = "actors/protocol/actor_machine.h"
MACHINE_SOURCE = "actors/protocol/actor_machine.cc"
SLOT_LEDGER = "actors/protocol/slot_ledger.h"
BODIES = "actors/engine/act_bodies.cc"
EXECUTOR = "actors/engine/rank_executor.cc"
EXECUTOR_HEADER = "actors/engine/rank_executor.h"
SETUP = "actors/engine/rank_setup.cc"
CUDA_DEVICE = "runtime/device/cuda/cuda_device.cc"
CUDA_CHAIN = "runtime/device/cuda/cuda_chain.cc"
QUEUE_CLOCK = "runtime/device/queue_clock.h"
MESSAGE_LEDGER = "runtime/transport/message_ledger.cc"
EPOCH_FENCE = "runtime/control/epoch_fence.h"
RECOVERY_PLAN = "tools/fleet/recovery_plan.cc"
EPOCH_START = "tools/fleet/epoch_start.cc"
LOSSES = "tools/fleet/losses.cc"
STATE_PARTS = "tools/fleet/state_parts.h"
STATE_PARTS_SOURCE = "tools/fleet/state_parts.cc"
STEP_COPIES = "tools/fleet/step_copies.h"
GUARDED_STATES = "tools/fleet/guarded_states.cc"
GUARDED_STATES_HEADER = "tools/fleet/guarded_states.h"
BUDDY_CHOICE = "tools/fleet/buddy_choice.cc"
BUDDY_PACE = "tools/fleet/buddy_pace.cc"
HOST_PLACES = "tools/fleet/host_places.cc"
MESH_CHANGE = "tools/fleet/mesh_change.cc"
FEWER_REPLICAS = "tools/job/fewer_replicas.cc"
RESTART_POLICY = "tools/launch/restart_policy.cc"
GROWTH_POLICY = "tools/launch/growth_policy.cc"
GROWTH_POLICY_HEADER = "tools/launch/growth_policy.h"
BATCH_POSITION = "runtime/store/batch_position.h"
CHECKPOINT_FOLDER = "runtime/store/checkpoint_folder.cc"
SHARD_FILE = "runtime/store/shard_file.cc"

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
    Mutant("graph-parameters-stale", "A graph keeps the parameters of kernels that it was captured with.", (
        Expression(CUDA_CHAIN, """
            std::equal(a.bytes.begin() + of_a.first_byte,
                       a.bytes.begin() + of_a.first_byte + of_a.num_bytes,
                       b.bytes.begin() + of_b.first_byte)""", """
            (of_a.launch.kernel != nullptr ||
             std::equal(a.bytes.begin() + of_a.first_byte,
                        a.bytes.begin() + of_a.first_byte + of_a.num_bytes,
                        b.bytes.begin() + of_b.first_byte))"""),),
           killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-of-other-addresses", "A graph is launched in which a library works at other addresses.", (
        Statement(CUDA_CHAIN, "if (now.launch.kernel == nullptr) return false;", ""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-forgets-its-parameters", "A chain compares parameters with those of the capture.", (
        Statement(CUDA_CHAIN, """
            std::copy_n(row_.bytes.begin() + now.first_byte, now.num_bytes,
                        kept.bytes.begin() + old.first_byte);""", ""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-parameters-of-another-kernel", "The parameters of each kernel go to the first kernel of the graph.", (
        Expression(CUDA_CHAIN, "place_.api->SetKernel(graph->exec, old.node, row_.LaunchOf(now))", """
            place_.api->SetKernel(graph->exec, kept.operations[0].node, row_.LaunchOf(now))"""),),
           killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-freed-while-it-runs", "The graphs of a chain are destroyed before the GPU has done them.", (
        Statement(CUDA_CHAIN, "place_.api->SynchronizeStream(place_.stream);", ""),), killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-recorder-stays", "What a queue gets behind a row is taken for a part of the row.", (
        Before(CUDA_CHAIN, "WEIR_RETURN_IF_ERROR(recorded);", "*place_.seen = {nullptr, this};"),),
           killed_by=CUDA_DEVICE_TEST),
    Mutant("graph-launched-twice", "The stream gets the operations of a row beside the graph.", (
        Before(CUDA_CHAIN, "if (graph != nullptr) return Launch(graph);", "(void)put();"),),
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


def _recovery(name, what, *edits):
    return Mutant(name, what, edits, killed_by=RECOVERY_TEST)


# These mutants decide wrongly after a failure: about epochs, states in memory, restarts or checkpoints.
_RECOVERY_MUTANTS = [
    _recovery("old-epoch-admitted", "What a process of an old epoch says counts.",
              Expression(EPOCH_FENCE, "epoch == epoch_", "epoch <= epoch_")),
    _recovery("epoch-not-begun", "The fence stays in the old epoch.",
              Statement(EPOCH_FENCE, "epoch_ = epoch;", "")),
    _recovery("replica-of-another-slice", "A shard of the same state counts as a replica, whatever its place is.",
              Statement(RECOVERY_PLAN, "return {shard.name, ToText(shard.slice)};", 'return {shard.name, ""};')),
    _recovery("copy-of-another-step", "A kept copy counts, whatever its step is.",
              Expression(RECOVERY_PLAN, "standing.kept_step == step", "standing.kept_step >= 0")),
    _recovery("later-step-counts", "Ranks that rest after a later step count as having the states of the step.",
              Expression(RECOVERY_PLAN, "standing.resting_step == step", "standing.resting_step >= step")),
    _recovery("rest-of-a-shard-forgotten", "Only the first part of a large shard moves.",
              Expression(RECOVERY_PLAN, "begin < transfer.bytes", "false")),
    _recovery("begins-between-gradients", "The job goes on from a step between the gradients of an update.",
              Expression(RECOVERY_PLAN, "step >= 0 && may_begin_at(step)", "step >= 0")),
    _recovery("memory-before-later-files", "States in memory count though the files are of a later step.",
              Expression(EPOCH_START, "plan.step >= 0 && plan.step >= file_step", "plan.step >= 0")),
    _recovery("step-of-the-files", "The data goes on where the files stand, and the states are those of memory.",
              Statement(EPOCH_START, "return {has_states ? plan.step : file_step, has_states};",
                        "return {file_step, has_states};")),
    _recovery("survivor-keeps-another-step", "A worker goes on with its copy, whatever its step is.",
              Expression(EPOCH_START, "standing.kept_step == first_step", "standing.kept_step >= 0")),
    _recovery("foreign-states-are-own", "A worker that gets its states from others wants its own.",
              Statement(EPOCH_START, "if (!goes_on) return Leaving::kForgetsCopy;", "")),
    _recovery("death-during-recovery-forgotten", "An epoch forgets the losses that it does not settle.",
              Expression(LOSSES, "!IsLoss(event) || Has(replaced, event.worker)", "true")),
    _recovery("settled-loss-stays", "A loss stays though a new process has come.",
              Expression(LOSSES, "!IsLoss(event) || Has(replaced, event.worker)", "!IsLoss(event)")),
    _recovery("process-without-hello-forgotten", "A process that has not come is awaited in the next epoch.",
              Expression(LOSSES, "!is_there[worker] && !Has(lost, worker)", "false")),
    _recovery("process-without-hello-stays", "A process that says no hello in time is not lost, and nobody kills it.",
              Expression(LOSSES, "event.kind == launch::FailureEvent::Kind::kNoHello", "false")),
    _recovery("half-a-state-stays", "Parts of states that came in the last epoch stay.",
              Statement(STATE_PARTS, "parts_.clear();", "")),
    _recovery("cursor-not-rewound", "A resumed run counts samples from its step alone.",
              Statement(BATCH_POSITION, "return used - steps * samples_per_step;", "return 0;")),
    _recovery("cursor-without-offset", "A checkpoint of a resumed run has a cursor that counts steps alone.",
              Statement(BATCH_POSITION, "return sample_offset + steps * samples_per_step;",
                        "return steps * samples_per_step;")),
    _recovery("same-failure-again", "The same failure at the same place starts the job again.",
              Expression(RESTART_POLICY, "last_->step == failure.step", "false")),
    _recovery("third-counts-as-second", "A failure whose cause may be outside ends the job the second time.",
              Expression(RESTART_POLICY, "failure.origin == FailureOrigin::kOutside", "false")),
    _recovery("own-failure-a-third-time", "A failure of the job itself starts the job again the second time.",
              Expression(RESTART_POLICY, "failure.origin == FailureOrigin::kOutside", "true")),
    _recovery("one-restart-too-many", "The job starts again once more than it may.",
              Expression(RESTART_POLICY, "recent() > limits_.restarts_max", "recent() > limits_.restarts_max + 1")),
    _recovery("shards-not-flushed", "The bytes of shards are not on disk at the commit.",
              Expression(SHARD_FILE, "file_->Flush()", "0")),
    _recovery("index-not-flushed", "The bytes of the index and of latest are not on disk when names lead to them.",
              Expression(CHECKPOINT_FOLDER, "file->Flush()", "0")),
    _recovery("renamed-before-flushed", "The folder gets its name before the names in it are on disk.",
              Expression(CHECKPOINT_FOLDER, "lock_->Flush()", "0")),
    _recovery("commit-not-flushed", "The name of a committed checkpoint is not on disk.",
              Expression(CHECKPOINT_FOLDER, "FlushFolder(files_, directory_)", "0")),
    _recovery("latest-before-the-commit", "The file latest names a checkpoint before it is committed.",
              Before(CHECKPOINT_FOLDER, "WEIR_RETURN_IF_ERROR(Publish(index));", """
                  WEIR_RETURN_IF_ERROR(PointLatest(directory_, index.facts.step, files_));""")),
    _recovery("oldest-checkpoint-resumed", "A run goes on from the oldest checkpoint.",
              Statement(CHECKPOINT_FOLDER, """
                  std::sort(committed.begin(), committed.end(), std::greater<int64_t>());""", """
                  std::sort(committed.begin(), committed.end());""")),
]

# These mutants decide wrongly about copies at buddies, the places of hosts that are lost, or a smaller mesh.
_LOST_HOST_MUTANTS = [
    _recovery("buddy-on-the-own-host", "The buddy of a worker is its neighbour, on the same host or not.",
              Expression(BUDDY_CHOICE, "others == 0 ? 1 : most", "size_t{1}")),
    _recovery("replica-on-the-own-host", "A state whose replicas are all on one host gets no copy at a buddy.",
              Expression(RECOVERY_PLAN, "are_on_one_host ? holders.first_of.size() > 1 : holders.hosts.size() > 1",
                         "holders.first_of.size() > 1")),
    _recovery("half-a-copy-counts", "A copy at a buddy counts before its last byte has come.",
              Expression(GUARDED_STATES_HEADER, "copy.step >= 0 && copy.filled == bytes", "copy.step >= 0")),
    _recovery("whole-copy-overwritten", "A new copy at a buddy takes the place of the last whole one.",
              Statement(GUARDED_STATES, "kept.receiving = last == &kept.copies[0] ? 1 : 0;", "kept.receiving = 0;")),
    _recovery("older-copy-not-kept", "A worker drops its last copy before its buddy has the new one.",
              Expression(STEP_COPIES, "copies_max > 1 && copies_[last_].step() >= 0", "false")),
    _recovery("copies-overtake-each-other", "New copies begin while others are on their way.",
              Expression(BUDDY_PACE, "!begun_.has_value()", "true")),
    _recovery("earlier-copy-has-arrived", "Copies count as arrived because earlier ones have.",
              Expression(BUDDY_PACE, "step == *begun_", "step >= 0")),
    _recovery("buddy-copy-of-another-step", "A copy at a buddy counts, whatever its step is.",
              Expression(RECOVERY_PLAN, "copy.charge != of.worker || copy.step != step", "copy.charge != of.worker")),
    _recovery("room-for-everybody", "A host in reserve takes the place of every host that is lost.",
              Statement(HOST_PLACES, "counts[to] += taken;", "")),
    _recovery("lost-host-has-room", "The workers of a lost host start on another lost one.",
              Statement(HOST_PLACES, "if (lost.count(host) > 0) return 0;", "")),
    _recovery("change-of-the-mesh-forgotten", "A loss in a change of the mesh brings back the old mesh.",
              Expression(MESH_CHANGE, "!loss.is_changing", "true")),
    _recovery("more-ranks-than-room", "The first survivor gets all ranks of the smaller mesh.",
              Expression(MESH_CHANGE, "ranks_of[worker].size() < room_of[worker]", "true")),
    _recovery("replicas-that-do-not-divide", "The batch of two replicas of three is not the batch of three.",
              Expression(FEWER_REPLICAS, "replicas % fewer != 0", "false")),
    _recovery("batch-of-fewer-replicas", "Fewer replicas have as many micro-batches as before.",
              Expression(FEWER_REPLICAS, "micro_batches * (replicas / fewer)", "micro_batches")),
    _recovery("fewer-devices-than-the-least", "The mesh becomes smaller than --min-devices.",
              Expression(FEWER_REPLICAS, "fewer * devices_each < devices_min", "false")),
    _recovery("rest-of-a-new-shard-forgotten", "A shard of a smaller mesh is filled from one old shard only.",
              Statement(RECOVERY_PLAN, """
                  for (Rect& rest : Subtract(rect, common)) still_missing.push_back(std::move(rest));""", "")),
    _recovery("grows-at-once", "The mesh grows as soon as it has become smaller.",
              Expression(GROWTH_POLICY, "time_ms - since_ms_ < wait_ms_", "false")),
    _recovery("grows-for-ever", "The mesh grows again however often its places were lost.",
              Expression(GROWTH_POLICY_HEADER, "lost_again_ > limits_.lost_again_max", "false")),
    _recovery("grows-in-spite-of-failures", "The mesh grows though the policy of restarts has no room.",
              Statement(RESTART_POLICY, "return RoomAtMs(time_ms) <= time_ms;", "return true;")),
    _recovery("returns-to-a-full-host", "A worker comes back to its host though others have gone there.",
              Expression(HOST_PLACES, "counts[host] < std::max(most, at_start[host])", "true")),
    _recovery("shard-whole-too-early", "A shard of a smaller mesh counts as whole after its first part.",
              Statement(STATE_PARTS_SOURCE, "whole.filled += part.bytes();", "whole.filled = shard.bytes();")),
]

MUTANTS = (_MACHINE_MUTANTS + _EXECUTOR_MUTANTS + _QUEUE_MUTANTS + _CUDA_MUTANTS + _LEDGER_MUTANTS +
           _RECOVERY_MUTANTS + _LOST_HOST_MUTANTS)
