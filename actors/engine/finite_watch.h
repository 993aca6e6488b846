// A FiniteWatch looks at the values that the acts of a rank read and write, and says where values
// that are not finite (NaN, infinity) come from: the first kernel, in the order of the plan, whose
// results are not finite though its operands are. Each operand is read once more, so a step under
// watch takes about twice its time; a watch exists only on request. Not here: running
// (rank_executor.h), the choice of the first rank (FirstOf makes the choice). Thread rule: one
// thread at a time, the rank's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "actors/plan/plan.h"
#include "ops/kernels/kernel.h"
#include "runtime/device/device_memory.h"

namespace weir::actors {

struct NonfiniteFinding {
  enum class Origin : uint8_t {
    kState,    // in a weight or an optimiser state, before the step
    kFeed,     // in the data
    kKernel,   // a kernel made it from finite values
    kArrived,  // a kernel read it; its origin was not seen
  };
  RankId rank;
  Origin origin = Origin::kArrived;
  int64_t start_ns = 0;  // planned start of that act; all ranks share the plan's times
  // "rank 1, forward layers.2, micro-batch 0: call up (matmul), output 0: 3 NaN of 4096 values,
  // ..."
  std::string text;
};

// Returns the finding of which the others can be consequences, or none if `findings` is empty.
std::optional<NonfiniteFinding> FirstOf(const std::vector<NonfiniteFinding>& findings);

class FiniteWatch {
 public:
  // Both must outlive the watch. The operands of kernels lie in `memory`.
  FiniteWatch(const Plan* plan, const device::DeviceMemory* memory)
      : plan_(plan), memory_(memory) {}

  // Names the act to which the calls that follow belong: act `act` of the actor, counted from the
  // first act of the job.
  void BeginAct(const PlanActor& actor, int64_t act, int64_t micro_batch, int64_t chunk);
  // The executor calls these two before and after call `call` of that act's program.
  void BeforeCall(size_t call, const kernels::KernelArgs& args);
  void AfterCall(size_t call, const kernels::KernelArgs& args);
  // Looks at the values that a feed gave for that act, in the host's memory.
  void AfterFeed(const void* data);
  // Looks at a state of the rank, in the host's memory, before the step.
  void LookAtState(const PlanState& state, const void* data);

  const std::optional<NonfiniteFinding>& first() const { return first_; }

 private:
  void Note(NonfiniteFinding::Origin origin, int64_t start_ns, const std::string& where,
            const TensorSlice& slice, const void* data);
  std::string ActText() const;
  bool IsFinite(const PlanOperand& operand, const void* at) const;
  device::HostView View(const PlanOperand& operand, const void* at) const;

  const Plan* const plan_;
  const device::DeviceMemory* const memory_;
  const PlanActor* actor_ = nullptr;
  int64_t start_ns_ = 0;
  int64_t micro_batch_ = 0;
  bool looks_ = false;         // at this act
  bool inputs_finite_ = true;  // of the call that runs
  std::optional<NonfiniteFinding> first_;
};

// "3 NaN and 1 infinite of 4096 values, the first at index 17"; empty if all are finite.
std::string NonfiniteText(DType dtype, const void* data, int64_t count);

}  // namespace weir::actors
