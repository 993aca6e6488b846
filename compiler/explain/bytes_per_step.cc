#include "compiler/explain/bytes_per_step.h"

#include <map>
#include <utility>

#include "compiler/lower/segments.h"
#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/status.h"

namespace weir::compiler {

absl::StatusOr<int64_t> BytesPerStep(const LogicalPlan& plan) {
  const Module& module = plan.module;
  TransferFactory transfers(plan.settings.runtime);
  int64_t total = 0;
  std::map<int, int64_t> of_function;  // bytes of one call
  for (const ProgramItem& item : module.items) {
    const int64_t times = TimesPerUpdate(plan, item.frequency);
    if (item.kind == ItemKind::kBoxing) {
      WEIR_ASSIGN_OR_RETURN(const MovedTensors moved, transfers.Plan(module, item, plan.places));
      total += times * transfers.TotalBytes(moved);
    }
    if (item.kind != ItemKind::kCall) continue;
    auto known = of_function.find(item.function);
    if (known == of_function.end()) {
      int64_t bytes = 0;
      const Function& function = module.functions[item.function];
      WEIR_ASSIGN_OR_RETURN(const SegmentedFunction segmented, CutSegments(function, plan.places));
      for (const TransferBundle& bundle : segmented.transfers)
        bytes += transfers.TotalBytes(transfers.Joined(bundle.moved));
      known = of_function.emplace(item.function, bytes).first;
    }
    total += times * known->second;
  }
  return total / plan.updates.every;
}

}  // namespace weir::compiler
