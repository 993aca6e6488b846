// Counts the arithmetic of a model, for figures such as model flops utilisation (MFU).
// Thread rule: pure function.
#pragma once

#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Returns the flops of a training step of the model as it is written: three times those of the
// forward pass of all micro-batches, because the backward pass takes twice those of the forward
// pass. Recomputation and replicas do not count.
double ModelFlops(const LogicalPlan& plan);

}  // namespace weir::compiler
