#include "actors/engine/program_binding.h"

#include <algorithm>
#include <optional>
#include <string>
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

// The values of PlanOperand::Place, in their order.
using Space = kernels::ChainOperand::Space;
constexpr Space kSpaces[] = {Space::kInput, Space::kOutput, Space::kScratch, Space::kState,
                             Space::kNone};

std::vector<kernels::ChainOperand> ChainOperands(const std::vector<PlanOperand>& operands) {
  std::vector<kernels::ChainOperand> places;
  for (const PlanOperand& operand : operands) {
    kernels::ChainOperand& place = places.emplace_back();
    place.space = kSpaces[static_cast<size_t>(operand.place)];
    if (place.space == Space::kNone) continue;
    place.index = place.space == Space::kScratch ? 0 : operand.index;
    place.token = operand.token;
    place.offset = operand.byte_offset;
    place.bytes = operand.slice.bytes();
  }
  return places;
}

// Returns call `i` of the program as a kernel of a chain, without its spec.
kernels::ChainKernel ChainKernelOf(const PlanCall& call, size_t i) {
  kernels::ChainKernel kernel;
  kernel.calls = {i};
  kernel.inputs = ChainOperands(call.inputs);
  kernel.outputs = ChainOperands(call.outputs);
  return kernel;
}

bool HasCollective(const PlanProgram& program) {
  return std::any_of(program.calls.begin(), program.calls.end(), [](const PlanCall& call) {
    return std::holds_alternative<Collective>(call.transfer);
  });
}

}  // namespace

absl::StatusOr<KernelSet> KernelSet::Create(const Plan& plan, const std::string& device,
                                            int num_threads) {
  KernelSet set;
  set.workspace_bytes_ = IdVector<QueueId, int64_t>(plan.num_queues, 0);
  IdVector<ProgramId, int64_t> workspaces;  // the largest of a program's kernels
  for (const PlanProgram& program : plan.programs) {
    std::vector<std::unique_ptr<kernels::Kernel>>& kernels = set.kernels_.emplace_back();
    int64_t& workspace = workspaces.emplace_back(0);
    std::vector<kernels::KernelSpec> specs;
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
      specs.push_back(std::move(spec));
    }
    if (absl::Status joined = set.Join(program, device, std::move(specs)); !joined.ok()) {
      return CausedBy(joined, "W0512",
                      absl::StrCat("rank ", plan.rank, ", program '", program.name, "'"));
    }
    for (const kernels::ChainKernel& kernel : set.chains_.back()) {
      if (kernel.joined != nullptr)
        workspace = std::max(workspace, kernel.joined->workspace_bytes());
    }
  }
  for (const PlanActor& actor : plan.actors) {
    if (!actor.program.has_value()) continue;
    int64_t& of_queue = set.workspace_bytes_[actor.queue];
    of_queue = std::max(of_queue, AlignUp(workspaces[actor.program]));
  }
  return set;
}

absl::Status KernelSet::Join(const PlanProgram& program, const std::string& device,
                             std::vector<kernels::KernelSpec> specs) {
  kernels::KernelChain& chain = chains_.emplace_back();
  if (HasCollective(program)) return absl::OkStatus();
  for (size_t i = 0; i < program.calls.size(); ++i) {
    chain.push_back(ChainKernelOf(program.calls[i], i));
    chain.back().spec = std::move(specs[i]);
  }
  WEIR_RETURN_IF_ERROR(kernels::JoinKernels(device, &chain));
  const bool any = std::any_of(chain.begin(), chain.end(),
                               [](const auto& kernel) { return kernel.joined != nullptr; });
  if (!any) chain.clear();
  return absl::OkStatus();
}

BoundProgram::BoundProgram(const Plan& plan, const PlanActor& actor, const KernelSet& kernels,
                           const StatePlaces& places)
    : collectors_(actor.outputs.size()), packers_(actor.outputs.size(), nullptr) {
  size_t num_tokens = 0;
  input_first_ = FirstTokens(actor.inputs, &num_tokens);
  input_patches_.resize(num_tokens);
  output_first_ = FirstTokens(actor.outputs, &num_tokens);
  output_patches_.resize(num_tokens);
  if (!actor.program.has_value()) return;
  const PlanProgram& program = plan.programs[actor.program];
  program_ = &program;
  const kernels::KernelChain& chain = kernels.chain(actor.program);
  size_t num_inputs = 0, num_outputs = 0;
  for (const PlanCall& call : program.calls) {
    num_inputs += call.inputs.size();
    num_outputs += call.outputs.size();
  }
  for (const kernels::ChainKernel& kernel : chain) {
    num_inputs += kernel.inputs.size();
    num_outputs += kernel.outputs.size();
  }
  inputs_.reserve(num_inputs);  // so that the spans of arguments stay valid
  input_bytes_.reserve(num_inputs);
  outputs_.reserve(num_outputs);
  calls_.reserve(program.calls.size());
  joined_.reserve(chain.size());
  for (size_t i = 0; i < program.calls.size(); ++i) {
    AddCall(ChainKernelOf(program.calls[i], i), kernels.kernel(actor.program, i), plan, actor,
            places, &calls_);
  }
  for (const kernels::ChainKernel& kernel : chain) {
    AddCall(kernel,
            kernel.joined != nullptr ? kernel.joined.get()
                                     : kernels.kernel(actor.program, kernel.calls[0]),
            plan, actor, places, &joined_);
  }
}

void BoundProgram::AddCall(const kernels::ChainKernel& call, kernels::Kernel* kernel,
                           const Plan& plan, const PlanActor& actor, const StatePlaces& places,
                           std::vector<Call>* calls) {
  const size_t first_input = inputs_.size(), first_output = outputs_.size();
  for (const kernels::ChainOperand& operand : call.inputs)
    Place(operand, plan, actor, places, /*is_output=*/false);
  for (const kernels::ChainOperand& operand : call.outputs)
    Place(operand, plan, actor, places, /*is_output=*/true);
  Call& bound = calls->emplace_back();
  bound.kernel = kernel;
  bound.calls = call.calls;
  bound.args.inputs = absl::MakeConstSpan(inputs_.data() + first_input, call.inputs.size());
  bound.args.outputs = absl::MakeConstSpan(outputs_.data() + first_output, call.outputs.size());
  bound.args.input_bytes =
      absl::MakeConstSpan(input_bytes_.data() + first_input, call.inputs.size());
  bound.args.random_key =
      MixKey(MixKey(plan.seed, actor.instance), program_->calls[call.calls[0]].rng_key);
  if (call.outputs.empty() || call.outputs[0].space != Space::kOutput) return;
  const int32_t port = call.outputs[0].index;
  if (actor.outputs[port].period > 1) collectors_[port].push_back(&bound.args);
  if (call.outputs[0].offset == 0 && actor.outputs[port].tokens == 1) {
    const bool packs = kernel != nullptr && kernel->output_bytes(/*chunk=*/0) >= 0;
    packers_[port] = packs ? kernel : nullptr;
  }
}

void BoundProgram::Place(const kernels::ChainOperand& operand, const Plan& plan,
                         const PlanActor& actor, const StatePlaces& places, bool is_output) {
  char* address = nullptr;
  const int32_t entry = static_cast<int32_t>(is_output ? outputs_.size() : inputs_.size());
  switch (operand.space) {
    case Space::kNone: break;
    case Space::kScratch:
      address = places.arena + plan.scratch_offsets[actor.queue] + operand.offset;
      break;
    case Space::kState:
      address = places.AddressOf(plan, actor.states[operand.index]) + operand.offset;
      break;
    case Space::kInput:
      address = places.AddressOf(actor.inputs[operand.index].register_id, operand.offset);
      if (address != nullptr) break;  // for good
      input_patches_[input_first_[operand.index] + operand.token].push_back(
          {entry, is_output, operand.offset, operand.bytes});
      break;
    case Space::kOutput:
      output_patches_[output_first_[operand.index] + operand.token].push_back(
          {entry, is_output, operand.offset, operand.bytes});
      break;
  }
  if (is_output) {
    outputs_.push_back(address);
  } else {
    inputs_.push_back(address);
    input_bytes_.push_back(operand.bytes);
  }
}

absl::Status BoundProgram::Run(const Act& act, const kernels::LaunchContext& launch) {
  if (chain_ == nullptr) return RunAll(act, launch);
  return chain_->Run([&] { return RunAll(act, launch); });
}

absl::Status BoundProgram::RunAll(const Act& act, const kernels::LaunchContext& launch) {
  for (Call& call : joined_.empty() ? calls_ : joined_)
    WEIR_RETURN_IF_ERROR(RunCall(call, act, launch));
  return absl::OkStatus();
}

absl::Status BoundProgram::RunTimed(const Act& act, const kernels::LaunchContext& launch,
                                    std::vector<int64_t>* kernel_ns) {
  const MonotonicClock clock;
  kernel_ns->clear();
  int64_t begin = clock.NowNs();
  for (size_t i = 0; i < calls_.size(); ++i) {
    WEIR_RETURN_IF_ERROR(RunCall(calls_[i], act, launch));
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
    WEIR_RETURN_IF_ERROR(RunCall(calls_[i], act, launch));
    WEIR_RETURN_IF_ERROR(launch.queue->Finish());
    watch->AfterCall(i, calls_[i].args);
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::Failed(const Call& call, const absl::Status& status) const {
  std::string where = absl::StrCat("program '", program_->name, "', ");
  for (size_t i = 0; i < call.calls.size(); ++i) {
    const PlanCall& of = program_->calls[call.calls[i]];
    absl::StrAppend(&where, i == 0 ? "call '" : ", joined with '", of.name, "' of ", of.op);
  }
  return CausedBy(status, "W0528", where);
}

int64_t BoundProgram::PayloadBytes(int port, int64_t chunk, int64_t slot_bytes) const {
  if (packers_[port] == nullptr) return slot_bytes;
  const int64_t filled = packers_[port]->output_bytes(chunk);
  return filled < 0 ? slot_bytes : std::min(filled, slot_bytes);
}

}  // namespace weir::actors
