#include "tests/chaos/sequential_reference.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::chaos {
namespace {

using Place = actors::PlanOperand::Place;
using Token = std::shared_ptr<std::vector<uint64_t>>;  // words, for alignment

Token NewToken(int64_t bytes) { return std::make_shared<std::vector<uint64_t>>(bytes / 8 + 1, 0); }

// The tokens of a register, or of both ends of an edge, from the first token on.
using Stream = std::vector<Token>;

// The content of each port of an actor: the tokens of a span.
using Held = std::vector<std::vector<Token>>;

struct Call {
  const actors::PlanCall* plan = nullptr;
  std::unique_ptr<kernels::Kernel> kernel;
};

std::vector<std::optional<TensorSlice>> Slices(const std::vector<actors::PlanOperand>& operands) {
  std::vector<std::optional<TensorSlice>> slices;
  for (const actors::PlanOperand& operand : operands) {
    slices.push_back(operand.place == Place::kNone ? std::nullopt
                                                   : std::make_optional(operand.slice));
  }
  return slices;
}

class SequentialRun {
 public:
  SequentialRun(absl::Span<const actors::Plan> plans, int64_t steps, actors::DataFeed& feed)
      : plans_(plans), steps_(steps), feed_(feed) {}

  absl::StatusOr<Reference> Run() {
    WEIR_RETURN_IF_ERROR(Load());
    bool moved = true;
    while (moved) {
      moved = false;
      for (Rank& rank : ranks_) {
        for (const actors::PlanActor& actor : rank.plan->actors) {
          while (CanAct(rank, actor)) {
            WEIR_RETURN_IF_ERROR(Act(rank, actor));
            moved = true;
          }
        }
      }
    }
    for (const Rank& rank : ranks_) {
      for (const actors::PlanActor& actor : rank.plan->actors) {
        if (rank.acts[actor.id] == ActsOf(actor)) continue;
        return absl::AbortedError(absl::StrCat("rank ", rank.plan->rank, ", actor '", actor.name,
                                               "' stops after ", rank.acts[actor.id], " acts"));
      }
    }
    for (auto& [key, values] : reference_.metrics) std::sort(values.begin(), values.end());
    return std::move(reference_);
  }

 private:
  struct Rank {
    const actors::Plan* plan = nullptr;
    IdVector<ActorId, int64_t> acts;  // done
    IdVector<RegisterId, Stream*> streams;
    IdVector<StateId, Token> states;
    IdVector<ProgramId, std::vector<Call>> programs;
  };

  absl::Status Load() {
    for (const actors::Plan& plan : plans_) {
      Rank& rank = ranks_.emplace_back();
      rank.plan = &plan;
      rank.acts.assign(plan.actors.size(), 0);
      for (const StateId id : plan.states.ids()) {
        const int64_t bytes = plan.states[id].slice.bytes();
        rank.states.push_back(NewToken(bytes));
        KeepState(plan.rank, id, rank.states.back(), bytes);
      }
      for (const actors::PlanRegister& r : plan.registers) {
        std::unique_ptr<Stream>& stream =
            streams_[r.side == actors::RegisterSide::kLocal
                         ? std::make_pair(plan.rank.value() + (int64_t{1} << 40),
                                          uint64_t(r.id.value()))
                         : std::make_pair(int64_t{0}, r.edge.value())];
        if (stream == nullptr) {
          stream = std::make_unique<Stream>();
          for (int32_t k = 0; k < r.initial_tokens; ++k) stream->push_back(NewToken(r.bytes));
        }
        rank.streams.push_back(stream.get());
      }
      for (const actors::PlanProgram& program : plan.programs) {
        std::vector<Call>& calls = rank.programs.emplace_back();
        for (const actors::PlanCall& call : program.calls) {
          kernels::KernelSpec spec;
          spec.op = call.op;
          spec.attrs = call.attrs;
          spec.transfer = call.transfer;
          spec.inputs = Slices(call.inputs);
          spec.outputs = Slices(call.outputs);
          spec.micro_batches = plan.micro_batches;
          WEIR_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel,
                                kernels::KernelRegistry::Create("cpu", spec));
          calls.push_back({&call, std::move(kernel)});
        }
      }
    }
    return absl::OkStatus();
  }

  void KeepState(RankId rank, StateId state, const Token& token, int64_t bytes) {
    reference_.states[{rank, state}].emplace_back(reinterpret_cast<const char*>(token->data()),
                                                  bytes);
  }

  // Returns the acts in the steps n of the run with n % every == every_phase.
  int64_t ActsOf(const actors::PlanActor& actor) const {
    const int64_t left_out = steps_ - 1 - actor.every_phase;
    return left_out < 0 ? 0 : (left_out / actor.every + 1) * actor.acts_per_step;
  }

  // Returns the span that an act belongs to.
  static int64_t SpanOf(const actors::PlanPort& port, int64_t act) {
    return (act + port.phase) / port.period;
  }

  bool CanAct(const Rank& rank, const actors::PlanActor& actor) const {
    const int64_t act = rank.acts[actor.id];
    if (act == ActsOf(actor)) return false;
    return std::all_of(actor.inputs.begin(), actor.inputs.end(), [&](const actors::PlanPort& port) {
      return static_cast<int64_t>(rank.streams[port.register_id]->size()) >=
             (SpanOf(port, act) + 1) * port.tokens;
    });
  }

  absl::Status Act(Rank& rank, const actors::PlanActor& actor) {
    const int64_t act = rank.acts[actor.id]++;
    Held inputs, outputs;
    for (const actors::PlanPort& port : actor.inputs) {
      const auto first = rank.streams[port.register_id]->begin() + SpanOf(port, act) * port.tokens;
      inputs.emplace_back(first, first + port.tokens);
    }
    for (const actors::PlanPort& port : actor.outputs) {
      std::vector<Token>& held =
          held_[{rank.plan->rank, actor.id, static_cast<int>(outputs.size())}];
      const bool begins = act == 0 || SpanOf(port, act - 1) != SpanOf(port, act);
      if (begins) held.clear();
      while (begins && static_cast<int32_t>(held.size()) < port.tokens)
        held.push_back(NewToken(rank.plan->registers[port.register_id].bytes));
      outputs.push_back(held);
    }
    WEIR_RETURN_IF_ERROR(Compute(rank, actor, act, inputs, outputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const actors::PlanPort& port = actor.outputs[i];
      if (SpanOf(port, act + 1) == SpanOf(port, act)) continue;
      Stream& stream = *rank.streams[port.register_id];
      stream.insert(stream.end(), outputs[i].begin(), outputs[i].end());
    }
    for (const StateId state : actor.states) {
      KeepState(rank.plan->rank, state, rank.states[state], rank.plan->states[state].slice.bytes());
    }
    return absl::OkStatus();
  }

  // Returns the place of the act in the span of the port that has the call's first output.
  static int64_t ActOfSpan(const actors::PlanActor& actor, int64_t act,
                           const actors::PlanCall& call) {
    if (call.outputs.empty() || call.outputs[0].place != Place::kOutput) return 0;
    const actors::PlanPort& port = actor.outputs[call.outputs[0].index];
    return (act + port.phase) % port.period;
  }

  absl::Status Compute(Rank& rank, const actors::PlanActor& actor, int64_t act, const Held& inputs,
                       const Held& outputs) {
    const int64_t step = act / actor.acts_per_step * actor.every + actor.every_phase;
    const int64_t micro_batch = act % actor.acts_per_step / actor.chunks;
    if (actor.kind == actors::ActorKind::kSource) {
      return feed_.Fill(actor.feed, step, micro_batch, actor.feed_slice, outputs[0][0]->data());
    }
    if (actor.kind == actors::ActorKind::kSink) {
      float value = 0;
      std::memcpy(&value, inputs[0][0]->data(), sizeof(value));
      reference_.metrics[{actor.feed, step, micro_batch}].push_back(value);
      return absl::OkStatus();
    }
    if (!actor.program.has_value()) {
      if (actor.kind == actors::ActorKind::kSend) *outputs[0][0] = *inputs[0][0];
      return absl::OkStatus();
    }
    const actors::PlanProgram& program = rank.plan->programs[actor.program];
    std::vector<uint64_t> scratch(program.scratch_bytes / 8 + 1, 0);
    const auto address = [&](const actors::PlanOperand& operand) -> char* {
      Token token;
      switch (operand.place) {
        case Place::kNone: return nullptr;
        case Place::kScratch: return reinterpret_cast<char*>(scratch.data()) + operand.byte_offset;
        case Place::kInput: token = inputs[operand.index][operand.token]; break;
        case Place::kOutput: token = outputs[operand.index][operand.token]; break;
        case Place::kState: token = rank.states[actor.states[operand.index]]; break;
      }
      return reinterpret_cast<char*>(token->data()) + operand.byte_offset;
    };
    for (Call& call : rank.programs[actor.program]) {
      std::vector<const void*> in;
      std::vector<void*> out;
      for (const actors::PlanOperand& operand : call.plan->inputs) in.push_back(address(operand));
      for (const actors::PlanOperand& operand : call.plan->outputs) out.push_back(address(operand));
      std::vector<uint64_t> workspace(call.kernel->workspace_bytes() / 8 + 1, 0);
      kernels::KernelArgs args;
      args.inputs = in;
      args.outputs = absl::MakeConstSpan(out);
      args.step = step;
      args.micro_batch = micro_batch;
      args.chunk = act % actor.chunks;
      args.span_act = ActOfSpan(actor, act, *call.plan);
      args.random_key = MixKey(MixKey(rank.plan->seed, actor.instance), call.plan->rng_key);
      WEIR_RETURN_IF_ERROR(call.kernel->Run(args, {nullptr, workspace.data()}));
    }
    return absl::OkStatus();
  }

  const absl::Span<const actors::Plan> plans_;
  const int64_t steps_;
  actors::DataFeed& feed_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int64_t, uint64_t>, std::unique_ptr<Stream>> streams_;
  // The tokens of the span of an output port.
  std::map<std::tuple<RankId, ActorId, int>, std::vector<Token>> held_;
  Reference reference_;
};

}  // namespace

absl::StatusOr<Reference> RunSequentially(absl::Span<const actors::Plan> plans, int64_t steps,
                                          actors::DataFeed& feed) {
  return SequentialRun(plans, steps, feed).Run();
}

}  // namespace weir::chaos
