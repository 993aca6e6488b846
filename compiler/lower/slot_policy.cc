#include "compiler/lower/slot_policy.h"

#include "compiler/lower/schedule_slots.h"

namespace weir::compiler {

int64_t GivenSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor) {
  if (tensor.variable >= 0) return 1;
  const Runtime& runtime = plan.job.runtime();
  if (runtime.debug_register_slots() > 0) return runtime.debug_register_slots();
  const bool repeats = tensor.tokens_per_step > 1;
  switch (runtime.registers()) {
    case Runtime::SOLVED: return 0;
    case Runtime::ONE: return 1;
    case Runtime::TWO: return repeats ? 2 : 1;
    case Runtime::TWICE_STAGES: return repeats ? 2 * plan.mesh.num_stages() : 1;
    default: return ScheduleSlots(plan, graph, tensor);
  }
}

}  // namespace weir::compiler
