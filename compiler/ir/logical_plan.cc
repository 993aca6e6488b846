#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

int64_t TimesPerUpdate(const LogicalPlan& plan, Frequency frequency) {
  switch (frequency) {
    case Frequency::kMicroBatch: return plan.micro_batches * plan.updates.every;
    case Frequency::kStep: return plan.updates.every;
    case Frequency::kUpdate:
    case Frequency::kAfterUpdate: return 1;
  }
  return 1;
}

}  // namespace weir::compiler
