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

zoo::TransformerOptions Sizes(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab,
                              int64_t sequence, int64_t batch) {
  zoo::TransformerOptions options;
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

zoo::TransformerOptions TinyGpt() { return Sizes(8, 8, 2, 16, 4, 4); }
zoo::TransformerOptions SmallGpt() { return Sizes(8, 256, 4, 256, 64, 8); }
zoo::TransformerOptions MediumGpt() { return Sizes(6, 512, 8, 2048, 128, 4); }

std::vector<proto::RankPlan> PlansOf(const zoo::TransformerOptions& options,
                                     const std::string& mesh) {
  proto::Job job = Must(zoo::GptJob(options));
  Must(job::SetMesh(mesh, &job));
  std::unique_ptr<compiler::LogicalPlan> logical = Must(compiler::CompileJob(job, {}));
  std::vector<proto::RankPlan> plans;
  for (RankId rank : logical->places.all_ranks())
    plans.push_back(Must(compiler::LowerForRank(*logical, rank)));
  return plans;
}

absl::Status CountingFeed::Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                                const TensorSlice& slice, void* out) {
  const int64_t n = slice.num_elements();
  for (int64_t i = 0; i < n; ++i)
    static_cast<int32_t*>(out)[i] = static_cast<int32_t>((i * 7 + step) % vocab_);
  return absl::OkStatus();
}

int64_t ActsPerStep(const actors::Plan& plan) {
  return std::accumulate(
      plan.actors.begin(), plan.actors.end(), int64_t{0},
      [](int64_t sum, const actors::PlanActor& actor) { return sum + actor.acts_per_step; });
}

int64_t KernelCallsPerStep(const actors::Plan& plan) {
  int64_t calls = 0;
  for (const actors::PlanActor& actor : plan.actors) {
    if (actor.program.has_value())
      calls +=
          static_cast<int64_t>(plan.programs[actor.program].calls.size()) * actor.acts_per_step;
  }
  return calls;
}

KernelLoop::KernelLoop(const actors::Session& session, actors::DataFeed* feed)
    : plan_(session.plan(RankId(0))),
      team_(1),
      kernels_(Must(actors::KernelSet::Create(plan_, "cpu", 1))),
      arena_(Must(memory_.Allocate(plan_.arena_bytes, device::DeviceMemory::Reach::kDevice))),
      workspace_(Must(
          memory_.Allocate(kernels_.workspace_bytes(), device::DeviceMemory::Reach::kDevice))) {
  for (const actors::PlanState& state : plan_.states) {
    Must(actors::InitializeState(plan_.seed, state.name, state.slice, state.init,
                                 arena_.base() + state.arena_offset));
  }
  const trace::ActRing& trace = session.executor(RankId(0)).trace();
  for (int64_t i = 0; i < trace.size(); ++i) {
    const trace::ActRecord& record = trace.at(i);
    if (!record.actor.has_value() || record.step + 1 != session.steps_done()) continue;
    const actors::PlanActor& actor = plan_.actors[record.actor];
    if (actor.kind == actors::ActorKind::kSource) {
      const actors::PlanRegister& r = plan_.registers[actor.outputs[0].register_id];
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

char* KernelLoop::Address(const actors::PlanActor& actor, const actors::PlanOperand& operand) {
  switch (operand.place) {
    case actors::PlanOperand::Place::kNone: return nullptr;
    case actors::PlanOperand::Place::kScratch: return arena_.base() + operand.byte_offset;
    case actors::PlanOperand::Place::kState:
      return arena_.base() + plan_.states[actor.states[operand.index]].arena_offset +
             operand.byte_offset;
    case actors::PlanOperand::Place::kInput:
      return arena_.base() + plan_.registers[actor.inputs[operand.index].register_id].arena_offset +
             operand.byte_offset;
    case actors::PlanOperand::Place::kOutput:
      return arena_.base() +
             plan_.registers[actor.outputs[operand.index].register_id].arena_offset +
             operand.byte_offset;
  }
  return nullptr;
}

void KernelLoop::AddAct(const actors::PlanActor& actor, int64_t micro_batch, int64_t chunk) {
  if (!actor.program.has_value()) return;
  const actors::PlanProgram& program = plan_.programs[actor.program];
  for (size_t i = 0; i < program.calls.size(); ++i) {
    Call& call = calls_.emplace_back();
    call.plan = &program.calls[i];
    call.kernel = kernels_.kernel(actor.program, i);
    for (const actors::PlanOperand& operand : call.plan->inputs)
      call.inputs.push_back(Address(actor, operand));
    for (const actors::PlanOperand& operand : call.plan->outputs)
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
