// Looks at what the acts of a rank read and write, and says where values that are not finite (NaN,
// infinity) come from: the first kernel, in the order of the plan, whose results are not finite
// though its operands are. Each operand is read once more, so that a step under watch takes about
// twice its time; nobody watches unless asked. Not here: running (rank_executor.h), which of the
// ranks was first (FirstOf says so). Thread rule: one thread at a time, the rank's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "actors/plan.h"
#include "ops/kernels/kernel.h"
#include "runtime/device/device_memory.h"

namespace weir {

struct NonfiniteFinding {
  enum class Origin : uint8_t {
    kState,    // in a weight, or in what the optimiser keeps, before the step
    kFeed,     // in the data
    kKernel,   // a kernel made it of finite values
    kArrived,  // a kernel read it; where it came from was not seen
  };
  int rank = 0;
  Origin origin = Origin::kArrived;
  int64_t start_ns = 0;  // of that act, by the plan, whose times all ranks share
  std::string text;  // "rank 1, forward layers.2, micro-batch 0: call up (matmul), output 0: 3 NaN
                     // of 4096 values, ..."
};

// That of which the others can be consequences; none if there is none.
std::optional<NonfiniteFinding> FirstOf(const std::vector<NonfiniteFinding>& findings);

class FiniteWatch {
 public:
  // Both must outlive the watch. Operands of kernels lie in `memory`.
  FiniteWatch(const Plan* plan, const DeviceMemory* memory) : plan_(plan), memory_(memory) {}

  // Which act the calls that follow are of: act `act` of the actor, counted from the first of the
  // job.
  void BeginAct(const PlanActor& actor, int64_t act, int64_t micro_batch, int64_t chunk);
  // Around call `call` of that act's program.
  void BeforeCall(size_t call, const KernelArgs& args);
  void AfterCall(size_t call, const KernelArgs& args);
  // Looks at the values that a feed gave for that act, in the host's memory.
  void AfterFeed(const void* data);
  // Before the step: a state of the rank, in the host's memory.
  void LookAtState(const PlanState& state, const void* data);

  const std::optional<NonfiniteFinding>& first() const { return first_; }

 private:
  void Note(NonfiniteFinding::Origin origin, int64_t start_ns, const std::string& where,
            const TensorSlice& slice, const void* data);
  std::string ActText() const;
  bool IsFinite(const PlanOperand& operand, const void* at) const;
  HostView View(const PlanOperand& operand, const void* at) const;

  const Plan* const plan_;
  const DeviceMemory* const memory_;
  const PlanActor* actor_ = nullptr;
  int64_t start_ns_ = 0;
  int64_t micro_batch_ = 0;
  bool looks_ = false;         // at this act
  bool inputs_finite_ = true;  // of the call that runs
  std::optional<NonfiniteFinding> first_;
};

// "3 NaN and 1 infinite of 4096 values, the first at index 17"; empty if all are finite.
std::string NonfiniteText(DType dtype, const void* data, int64_t count);

}  // namespace weir
