#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

int64_t TimesPerUpdate(const LogicalPlan& plan, Rate rate) {
  switch (rate) {
    case Rate::kMicroBatch: return plan.micro_batches * plan.updates.every;
    case Rate::kStep: return plan.updates.every;
    case Rate::kUpdate:
    case Rate::kAfterUpdate: return 1;
  }
  return 1;
}

}  // namespace weir::compiler
