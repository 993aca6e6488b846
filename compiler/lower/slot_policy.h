// The slots that registers get by the job's choice (Runtime::registers), before any solve.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// Returns the slots of the register that holds `tensor`, equal on both sides of a message. 0: the
// solve decides.
int64_t GivenSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor);

}  // namespace weir::compiler
