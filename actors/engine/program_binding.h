// Programs made ready to run: the kernels of a rank, made once per program call, and
// for each actor tables of operand addresses, resolved when the plan is loaded. Running
// an act writes at most the addresses of slots that have changed and the sizes of tokens that may
// be shorter than their slots, and allocates nothing.
// Not here: when an act runs (the protocol) or on what (the device).
// Thread rule: one thread at a time, the rank's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/engine/finite_watch.h"
#include "actors/plan/plan.h"
#include "actors/plan/shared_states.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/kernel_chain.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/device/device_queue.h"

namespace weir::actors {

// The kernels of one rank; actors of one program share them.
class KernelSet {
 public:
  // Errors name the program and call (W0512), in front of what the kernel says.
  static absl::StatusOr<KernelSet> Create(const Plan& plan, const std::string& device,
                                          int num_threads);

  // Null for a collective, which is no kernel.
  kernels::Kernel* kernel(ProgramId program, size_t call) const {
    return kernels_[program][call].get();
  }
  // Returns the kernels that an act of the program runs, after the device has joined what it can.
  // Empty: the act runs the calls one by one.
  const kernels::KernelChain& chain(ProgramId program) const { return chains_[program]; }
  // The largest workspace of any kernel of the actors of a queue of the plan: a multiple of
  // kOperandAlignment.
  int64_t workspace_bytes(QueueId queue) const { return workspace_bytes_[queue]; }
  int64_t workspace_bytes() const {  // of all queues
    return std::accumulate(workspace_bytes_.begin(), workspace_bytes_.end(), int64_t{0});
  }

 private:
  absl::Status Join(const PlanProgram& program, const std::string& device,
                    std::vector<kernels::KernelSpec> specs);

  IdVector<ProgramId, std::vector<std::unique_ptr<kernels::Kernel>>> kernels_;  // by call
  IdVector<ProgramId, kernels::KernelChain> chains_;
  IdVector<QueueId, int64_t> workspace_bytes_;
};

// Where the states and the scratch of a rank lie. Shared states lie in the arena of their owner.
struct StatePlaces {
  char* arena = nullptr;
  const SharedStates* shared = nullptr;  // null: nothing is shared
  char* owner_arena = nullptr;

  char* AddressOf(const Plan& plan, StateId state) const {
    return shared != nullptr && shared->Has(state) ? owner_arena + shared->OffsetOf(state)
                                                   : arena + plan.states[state].arena_offset;
  }
  // Returns where a byte of a shared register lies; null if the register is not shared.
  char* AddressOf(RegisterId r, int64_t byte) const {
    return shared != nullptr && shared->Has(r) ? owner_arena + shared->OffsetOf(r, byte) : nullptr;
  }
};

// One actor's program. Does not move, since kernels' arguments point into it.
class BoundProgram {
 public:
  // `plan` must outlive the program.
  BoundProgram(const Plan& plan, const PlanActor& actor, const KernelSet& kernels,
               const StatePlaces& places);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  // Token `token` of the span of this port now lies in the slot at `address`.
  void BindInput(int port, int token, char* address) {
    Bind(input_patches_[input_first_[port] + token], address);
  }
  void BindOutput(int port, int token, char* address) {
    Bind(output_patches_[output_first_[port] + token], address);
  }

  // Token `token` of the span of this port has `bytes` bytes, which its slot may exceed.
  void SetTokenBytes(int port, int token, int64_t bytes) {
    for (const Patch& patch : input_patches_[input_first_[port] + token]) {
      if (!patch.to_outputs)
        input_bytes_[patch.entry] = std::clamp<int64_t>(bytes - patch.offset, 0, patch.bytes);
    }
  }

  // Returns whether any kernel has an operand in one of the `tokens` slots that this port holds.
  bool ReadsInput(int port, int tokens) const {
    return AnyPatch(&input_patches_[input_first_[port]], tokens);
  }
  bool WritesOutput(int port, int tokens) const {
    return AnyPatch(&output_patches_[output_first_[port]], tokens);
  }

  // An act of a span of output `port`, the `position`th from 0.
  bool Collects(int port) const { return !collectors_[port].empty(); }
  void SetPosition(int port, int64_t position) {
    for (kernels::KernelArgs* args : collectors_[port]) args->span_act = position;
  }

  // The act that the kernels of the program compute.
  struct Act {
    int64_t step = 0;
    int64_t micro_batch = 0;
    int64_t chunk = 0;
  };
  // Returns how many kernels an act runs.
  int num_kernels() const {
    return static_cast<int>(joined_.empty() ? calls_.size() : joined_.size());
  }
  // Lets the queue that the program's acts are put into keep their kernels as a row. Null: it does
  // not.
  void KeepIn(std::unique_ptr<device::DeviceChain> chain) { chain_ = std::move(chain); }

  // Runs all kernels, in order, or puts them into the queue, joined where the device joins them. An
  // error is that of the first kernel that fails (W0528), with its name; those after it are not
  // run.
  absl::Status Run(const Act& act, const kernels::LaunchContext& launch);
  // The same, call by call, waiting for each kernel, and what it took.
  absl::Status RunTimed(const Act& act, const kernels::LaunchContext& launch,
                        std::vector<int64_t>* kernel_ns);
  // The same, call by call, waiting for each kernel, under a watch, which knows of the act already.
  absl::Status RunWatched(const Act& act, const kernels::LaunchContext& launch, FiniteWatch* watch);

  // Returns the addresses of the operands of a call, as bound now.
  const kernels::KernelArgs& args(size_t call) const { return calls_[call].args; }

  // Bytes that an act with this chunk fills of output `port`, which holds `slot_bytes`.
  int64_t PayloadBytes(int port, int64_t chunk, int64_t slot_bytes) const;
  // Returns whether some act may fill less than a slot of output `port`.
  bool MakesShortTokens(int port) const { return packers_[port] != nullptr; }

 private:
  struct Call {
    kernels::Kernel* kernel;
    kernels::KernelArgs args;
    std::vector<size_t> calls;  // of the program, whose work this is
  };
  // Entry `entry` of inputs_ or outputs_ is byte `offset` of the port's slot, and as long as
  // `bytes`.
  struct Patch {
    int32_t entry;
    bool to_outputs;
    int64_t offset;
    int64_t bytes;
  };
  static bool AnyPatch(const std::vector<Patch>* patches, int tokens) {
    return std::any_of(patches, patches + tokens,
                       [](const std::vector<Patch>& of_token) { return !of_token.empty(); });
  }
  void Bind(const std::vector<Patch>& patches, char* address) {
    for (const Patch& patch : patches) {
      if (patch.to_outputs) {
        outputs_[patch.entry] = address + patch.offset;
      } else {
        inputs_[patch.entry] = address + patch.offset;
      }
    }
  }
  // Adds a kernel to `calls`, which has room, with the addresses of its operands.
  void AddCall(const kernels::ChainKernel& call, kernels::Kernel* kernel, const Plan& plan,
               const PlanActor& actor, const StatePlaces& places, std::vector<Call>* calls);
  void Place(const kernels::ChainOperand& operand, const Plan& plan, const PlanActor& actor,
             const StatePlaces& places, bool is_output);
  absl::Status RunAll(const Act& act, const kernels::LaunchContext& launch);
  absl::Status RunCall(Call& call, const Act& act, const kernels::LaunchContext& launch) {
    call.args.step = act.step;
    call.args.micro_batch = act.micro_batch;
    call.args.chunk = act.chunk;
    absl::Status status = call.kernel->Run(call.args, launch);
    return status.ok() ? status : Failed(call, status);
  }
  absl::Status Failed(const Call& call, const absl::Status& status) const;

  const PlanProgram* program_ = nullptr;

  std::vector<const void*> inputs_;  // of all calls, one after another, then of joined_
  std::vector<void*> outputs_;
  std::vector<int64_t> input_bytes_;  // of inputs_
  std::vector<Call> calls_;           // those of the program
  std::vector<Call> joined_;  // what an act runs in their place; empty: the calls themselves
  std::vector<std::vector<Patch>> input_patches_;   // by port and token
  std::vector<std::vector<Patch>> output_patches_;  // by port and token
  std::vector<int32_t> input_first_;                // by port: where its tokens begin
  std::vector<int32_t> output_first_;
  // By output port: the arguments of kernels whose output 0 lies there, if its spans have several
  // acts.
  std::vector<std::vector<kernels::KernelArgs*>> collectors_;
  // The kernel that fills an output port from its start and may leave a rest, by port; null: none.
  std::vector<kernels::Kernel*> packers_;
  std::unique_ptr<device::DeviceChain> chain_;  // null: kernels are put into the queue one by one
};

}  // namespace weir::actors
