#include "compiler/explain/bytes_per_step.h"

#include <map>

#include "compiler/lower/segments.h"
#include "runtime/base/status.h"

namespace weir::compiler {

absl::StatusOr<int64_t> BytesPerStep(const LogicalPlan& plan) {
  const Module& module = plan.module;
  int64_t total = 0;
  std::map<int, int64_t> of_function;  // bytes of one call
  for (const ProgramItem& item : module.items) {
    const int64_t times = TimesPerUpdate(plan, item.rate);
    if (item.kind == ItemKind::kBoxing) {
      for (size_t i = 0; i < item.inputs.size(); ++i) {
        const ProgramValue& from = module.values[item.inputs[i]];
        const ProgramValue& to = module.values[item.outputs[i]];
        WEIR_ASSIGN_OR_RETURN(
            std::vector<BoxingStep> steps,
            PlanBoxing(from.type, {from.layout, from.stage}, {to.layout, to.stage}, plan.mesh));
        total += times * TotalBytes(from.type, steps, plan.mesh);
      }
    }
    if (item.kind != ItemKind::kCall) continue;
    auto known = of_function.find(item.function);
    if (known == of_function.end()) {
      int64_t bytes = 0;
      const Function& function = module.functions[item.function];
      WEIR_ASSIGN_OR_RETURN(SegmentedFunction segmented, CutSegments(function, plan.mesh));
      for (const TransferBundle& bundle : segmented.transfers) {
        for (size_t k = 0; k < bundle.nodes.size(); ++k) {
          bytes += TotalBytes(function.values[function.nodes[bundle.nodes[k]].inputs[0]].type,
                              bundle.steps[k], plan.mesh);
        }
      }
      known = of_function.emplace(item.function, bytes).first;
    }
    total += times * known->second;
  }
  return total / plan.updates.every;
}

}  // namespace weir::compiler
