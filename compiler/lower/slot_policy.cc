#include "compiler/lower/slot_policy.h"

#include <algorithm>

#include "compiler/lower/schedule_slots.h"

namespace weir::compiler {

namespace {

int64_t SlotsByPolicy(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor) {
  const RuntimeSettings& runtime = plan.settings.runtime;
  if (runtime.debug_register_slots > 0) return runtime.debug_register_slots;
  const bool repeats = tensor.tokens_per_step > 1;
  switch (runtime.registers) {
    case RegisterChoice::kSolved: return 0;
    case RegisterChoice::kOne: return 1;
    case RegisterChoice::kTwo: return repeats ? 2 : 1;
    case RegisterChoice::kTwiceStages: return repeats ? 2 * plan.places.size() : 1;
    case RegisterChoice::kSchedule: break;
  }
  return ScheduleSlots(plan, graph, tensor);
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

}  // namespace weir::compiler
