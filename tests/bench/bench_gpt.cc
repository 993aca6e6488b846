#include "tests/bench/bench_gpt.h"

#include <numeric>
#include <utility>

#include "actors/session/initialize_state.h"
#include "compiler/compile.h"
#include "runtime/base/random.h"
#include "tests/bench/bench_row.h"
#include "tools/job/job_file.h"

namespace weir::bench {
namespace {

TransformerOptions Sizes(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab,
                         int64_t sequence, int64_t batch) {
  TransformerOptions options;
  options.layers = layers;
  options.hidden = hidden;
  options.heads = heads;
  options.vocab = vocab;
  options.sequence = sequence;
  options.training.batch = batch;
  options.training.steps = 1000000;
  return options;
}

}  // namespace

TransformerOptions TinyGpt() { return Sizes(8, 8, 2, 16, 4, 4); }
TransformerOptions SmallGpt() { return Sizes(8, 256, 4, 256, 64, 8); }
TransformerOptions MediumGpt() { return Sizes(6, 512, 8, 2048, 128, 4); }

std::vector<RankPlan> PlansOf(const TransformerOptions& options, const std::string& mesh) {
  Job job = Must(GptJob(options));
  Must(SetMesh(mesh, &job));
  std::unique_ptr<LogicalPlan> logical = Must(CompileJob(job, {}));
  std::vector<RankPlan> plans;
  for (int64_t rank = 0; rank < logical->mesh.num_ranks(); ++rank)
    plans.push_back(Must(LowerForRank(*logical, rank)));
  return plans;
}

absl::Status CountingFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                                const TensorSlice& slice, void* out) {
  const int64_t n = slice.num_elements();
  for (int64_t i = 0; i < n; ++i)
    static_cast<int32_t*>(out)[i] = static_cast<int32_t>((i * 7 + step) % vocab_);
  return absl::OkStatus();
}

int64_t ActsPerStep(const Plan& plan) {
  return std::accumulate(
      plan.actors.begin(), plan.actors.end(), int64_t{0},
      [](int64_t sum, const PlanActor& actor) { return sum + actor.acts_per_step; });
}

int64_t KernelCallsPerStep(const Plan& plan) {
  int64_t calls = 0;
  for (const PlanActor& actor : plan.actors) {
    if (actor.program >= 0)
      calls +=
          static_cast<int64_t>(plan.programs[actor.program].calls.size()) * actor.acts_per_step;
  }
  return calls;
}

KernelLoop::KernelLoop(const Session& session, DataFeed* feed)
    : plan_(session.plan(0)),
      team_(1),
      kernels_(Must(KernelSet::Create(plan_, "cpu", 1))),
      arena_(Must(memory_.Allocate(plan_.arena_bytes, DeviceMemory::Reach::kDevice))),
      workspace_(Must(memory_.Allocate(kernels_.workspace_bytes(), DeviceMemory::Reach::kDevice))) {
  for (const PlanState& state : plan_.states) {
    Must(InitializeState(plan_.seed, state.name, state.slice, state.init,
                         arena_.base() + state.arena_offset));
  }
  const ActRing& trace = session.executor(0).trace();
  for (int64_t i = 0; i < trace.size(); ++i) {
    const ActRecord& record = trace.at(i);
    if (record.actor < 0 || record.step + 1 != session.steps_done()) continue;
    const PlanActor& actor = plan_.actors[record.actor];
    if (actor.kind == ActorKind::kSource) {
      const PlanRegister& r = plan_.registers[actor.outputs[0].register_id];
      Must(feed->Fill(actor.feed, 0, 0, actor.feed_slice, arena_.base() + r.arena_offset));
    } else {
      AddAct(actor, record.micro_batch, record.chunk);
    }
  }
  for (Call& call : calls_) {  // they do not move any more
    call.args.inputs = call.inputs;
    call.args.outputs = absl::MakeConstSpan(call.outputs);
  }
}

char* KernelLoop::Address(const PlanActor& actor, const PlanOperand& operand) {
  switch (operand.place) {
    case PlanOperand::Place::kNone: return nullptr;
    case PlanOperand::Place::kScratch: return arena_.base() + operand.byte_offset;
    case PlanOperand::Place::kState:
      return arena_.base() + plan_.states[actor.states[operand.index]].arena_offset +
             operand.byte_offset;
    case PlanOperand::Place::kInput:
      return arena_.base() + plan_.registers[actor.inputs[operand.index].register_id].arena_offset +
             operand.byte_offset;
    case PlanOperand::Place::kOutput:
      return arena_.base() +
             plan_.registers[actor.outputs[operand.index].register_id].arena_offset +
             operand.byte_offset;
  }
  return nullptr;
}

void KernelLoop::AddAct(const PlanActor& actor, int64_t micro_batch, int64_t chunk) {
  if (actor.program < 0) return;
  const PlanProgram& program = plan_.programs[actor.program];
  for (size_t i = 0; i < program.calls.size(); ++i) {
    Call& call = calls_.emplace_back();
    call.plan = &program.calls[i];
    call.kernel = kernels_.kernel(actor.program, i);
    for (const PlanOperand& operand : call.plan->inputs)
      call.inputs.push_back(Address(actor, operand));
    for (const PlanOperand& operand : call.plan->outputs)
      call.outputs.push_back(Address(actor, operand));
    call.args.micro_batch = micro_batch;
    call.args.chunk = chunk;
    call.args.random_key = MixKey(MixKey(plan_.seed, actor.instance), call.plan->rng_key);
  }
}

void KernelLoop::Run() {
  for (Call& call : calls_) {
    call.args.step = step_;
    Must(call.kernel->Run(call.args, {&team_, workspace_.base()}));
  }
  ++step_;
}

void KernelLoop::RunTimed() {
  double before = ThreadCpuNs();
  for (Call& call : calls_) {
    call.args.step = step_;
    Must(call.kernel->Run(call.args, {&team_, workspace_.base()}));
    const double after = ThreadCpuNs();
    call.ns += after - before;
    before = after;
  }
  ++step_;
}

}  // namespace weir::bench
