#include "actors/engine/program_binding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/alignment.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/device/device_queue.h"

namespace weir::actors {
namespace {

std::vector<std::optional<TensorSlice>> Slices(const std::vector<PlanOperand>& operands) {
  std::vector<std::optional<TensorSlice>> slices;
  for (const PlanOperand& operand : operands) {
    if (operand.place == PlanOperand::Place::kNone) {
      slices.emplace_back(std::nullopt);
    } else {
      slices.emplace_back(operand.slice);
    }
  }
  return slices;
}

// Where the tokens of each port begin, if those of all ports stand in one row; and the length of
// that row.
std::vector<int32_t> FirstTokens(const std::vector<PlanPort>& ports, size_t* num_tokens) {
  std::vector<int32_t> first;
  int32_t next = 0;
  for (const PlanPort& port : ports) {
    first.push_back(next);
    next += port.tokens;
  }
  *num_tokens = next;
  return first;
}

}  // namespace

absl::StatusOr<KernelSet> KernelSet::Create(const Plan& plan, const std::string& device,
                                            int num_threads) {
  KernelSet set;
  set.workspace_bytes_ = IdVector<QueueId, int64_t>(plan.num_queues, 0);
  IdVector<ProgramId, int64_t> workspaces;
  for (const PlanProgram& program : plan.programs) {
    std::vector<std::unique_ptr<kernels::Kernel>>& kernels = set.kernels_.emplace_back();
    int64_t& workspace = workspaces.emplace_back(0);
    for (const PlanCall& call : program.calls) {
      if (std::holds_alternative<Collective>(call.transfer)) {
        kernels.emplace_back();
        continue;
      }
      kernels::KernelSpec spec;
      spec.op = call.op;
      spec.attrs = call.attrs;
      spec.inputs = Slices(call.inputs);
      spec.outputs = Slices(call.outputs);
      spec.micro_batches = plan.micro_batches;
      spec.num_threads = num_threads;
      spec.transfer = call.transfer;
      absl::StatusOr<std::unique_ptr<kernels::Kernel>> kernel =
          kernels::KernelRegistry::Create(device, spec);
      if (!kernel.ok()) {
        return CausedBy(kernel.status(), "W0512",
                        absl::StrCat("rank ", plan.rank, ", program '", program.name, "', call '",
                                     call.name, "' of ", call.op));
      }
      workspace = std::max(workspace, (*kernel)->workspace_bytes());
      kernels.push_back(*std::move(kernel));
    }
  }
  for (const PlanActor& actor : plan.actors) {
    if (!actor.program.has_value()) continue;
    int64_t& of_queue = set.workspace_bytes_[actor.queue];
    of_queue = std::max(of_queue, AlignUp(workspaces[actor.program]));
  }
  return set;
}

BoundProgram::BoundProgram(const Plan& plan, const PlanActor& actor, const KernelSet& kernels,
                           char* arena)
    : collectors_(actor.outputs.size()), packers_(actor.outputs.size(), nullptr) {
  size_t num_tokens = 0;
  input_first_ = FirstTokens(actor.inputs, &num_tokens);
  input_patches_.resize(num_tokens);
  output_first_ = FirstTokens(actor.outputs, &num_tokens);
  output_patches_.resize(num_tokens);
  if (!actor.program.has_value()) return;
  const PlanProgram& program = plan.programs[actor.program];
  program_ = &program;
  size_t num_inputs = 0, num_outputs = 0;
  for (const PlanCall& call : program.calls) {
    num_inputs += call.inputs.size();
    num_outputs += call.outputs.size();
  }
  inputs_.reserve(num_inputs);  // so that the spans below stay valid
  input_bytes_.reserve(num_inputs);
  outputs_.reserve(num_outputs);
  const uint64_t actor_key = MixKey(plan.seed, actor.instance);
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const PlanCall& call = program.calls[i];
    const size_t first_input = inputs_.size(), first_output = outputs_.size();
    for (const PlanOperand& operand : call.inputs)
      Place(operand, plan, actor, arena, /*is_output=*/false);
    for (const PlanOperand& operand : call.outputs)
      Place(operand, plan, actor, arena, /*is_output=*/true);
    Call& bound = calls_.emplace_back();
    bound.kernel = kernels.kernel(actor.program, i);
    bound.args.inputs = absl::MakeConstSpan(inputs_.data() + first_input, call.inputs.size());
    bound.args.outputs = absl::MakeConstSpan(outputs_.data() + first_output, call.outputs.size());
    bound.args.input_bytes =
        absl::MakeConstSpan(input_bytes_.data() + first_input, call.inputs.size());
    bound.args.random_key = MixKey(actor_key, call.rng_key);
    if (!call.outputs.empty() && call.outputs[0].place == PlanOperand::Place::kOutput &&
        actor.outputs[call.outputs[0].index].period > 1) {
      collectors_[call.outputs[0].index].push_back(static_cast<int32_t>(i));
    }
    if (!call.outputs.empty() && call.outputs[0].place == PlanOperand::Place::kOutput &&
        call.outputs[0].byte_offset == 0 && actor.outputs[call.outputs[0].index].tokens == 1) {
      const bool packs = bound.kernel != nullptr && bound.kernel->output_bytes(/*chunk=*/0) >= 0;
      packers_[call.outputs[0].index] = packs ? bound.kernel : nullptr;
    }
  }
}

void BoundProgram::Place(const PlanOperand& operand, const Plan& plan, const PlanActor& actor,
                         char* arena, bool is_output) {
  char* address = nullptr;
  const int64_t bytes = operand.place == PlanOperand::Place::kNone ? 0 : operand.slice.bytes();
  const int32_t entry = static_cast<int32_t>(is_output ? outputs_.size() : inputs_.size());
  switch (operand.place) {
    case PlanOperand::Place::kNone: break;
    case PlanOperand::Place::kScratch:
      address = arena + plan.scratch_offsets[actor.queue] + operand.byte_offset;
      break;
    case PlanOperand::Place::kState:
      address = arena + plan.states[actor.states[operand.index]].arena_offset + operand.byte_offset;
      break;
    case PlanOperand::Place::kInput:
      input_patches_[input_first_[operand.index] + operand.token].push_back(
          {entry, is_output, operand.byte_offset, bytes});
      break;
    case PlanOperand::Place::kOutput:
      output_patches_[output_first_[operand.index] + operand.token].push_back(
          {entry, is_output, operand.byte_offset, bytes});
      break;
  }
  if (is_output) {
    outputs_.push_back(address);
  } else {
    inputs_.push_back(address);
    input_bytes_.push_back(bytes);
  }
}

absl::Status BoundProgram::Run(const Act& act, const kernels::LaunchContext& launch) {
  for (size_t i = 0; i < calls_.size(); ++i) WEIR_RETURN_IF_ERROR(RunCall(i, act, launch));
  return absl::OkStatus();
}

absl::Status BoundProgram::RunTimed(const Act& act, const kernels::LaunchContext& launch,
                                    std::vector<int64_t>* kernel_ns) {
  const MonotonicClock clock;
  kernel_ns->clear();
  int64_t begin = clock.NowNs();
  for (size_t i = 0; i < calls_.size(); ++i) {
    WEIR_RETURN_IF_ERROR(RunCall(i, act, launch));
    WEIR_RETURN_IF_ERROR(launch.queue->Finish());
    const int64_t end = clock.NowNs();
    kernel_ns->push_back(end - begin);
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::RunWatched(const Act& act, const kernels::LaunchContext& launch,
                                      FiniteWatch* watch) {
  WEIR_RETURN_IF_ERROR(launch.queue->Finish());
  for (size_t i = 0; i < calls_.size(); ++i) {
    watch->BeforeCall(i, calls_[i].args);
    WEIR_RETURN_IF_ERROR(RunCall(i, act, launch));
    WEIR_RETURN_IF_ERROR(launch.queue->Finish());
    watch->AfterCall(i, calls_[i].args);
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::Failed(size_t index, const absl::Status& status) const {
  const PlanCall& call = program_->calls[index];
  return CausedBy(
      status, "W0528",
      absl::StrCat("program '", program_->name, "', call '", call.name, "' of ", call.op));
}

int64_t BoundProgram::PayloadBytes(int port, int64_t chunk, int64_t slot_bytes) const {
  if (packers_[port] == nullptr) return slot_bytes;
  const int64_t filled = packers_[port]->output_bytes(chunk);
  return filled < 0 ? slot_bytes : std::min(filled, slot_bytes);
}

}  // namespace weir::actors
