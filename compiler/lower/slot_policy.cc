#include "compiler/lower/slot_policy.h"

#include <algorithm>

#include "compiler/lower/schedule_slots.h"

namespace weir::compiler {

namespace {

int64_t SlotsByPolicy(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor) {
  const proto::Runtime& runtime = plan.job.runtime();
  if (runtime.debug_register_slots() > 0) return runtime.debug_register_slots();
  const bool repeats = tensor.tokens_per_step > 1;
  switch (runtime.registers()) {
    case proto::Runtime::SOLVED: return 0;
    case proto::Runtime::ONE: return 1;
    case proto::Runtime::TWO: return repeats ? 2 : 1;
    case proto::Runtime::TWICE_STAGES: return repeats ? 2 * plan.places.size() : 1;
    default: return ScheduleSlots(plan, graph, tensor);
  }
}

}  // namespace

int64_t GivenSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor) {
  if (tensor.slots > 0) return tensor.slots;
  if (tensor.variable >= 0) return 1;
  const int64_t slots = SlotsByPolicy(plan, graph, tensor);
  // Tokens that readers lag behind stay in their slots while another token is made, perhaps over
  // several steps.
  return tensor.delay > 0 ? std::max(slots, tensor.delay + 1) : slots;
}

int64_t GatherAhead(const LogicalPlan& plan) {
  const int64_t ahead = plan.job.runtime().gather_ahead();
  return ahead == 0 ? 1 : ahead;
}

}  // namespace weir::compiler
