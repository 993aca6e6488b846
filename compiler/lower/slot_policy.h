// How many slots registers get by the job's choice (Runtime::registers), before anything is solved.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// The slots of the register that holds `tensor`, equal on both sides of a message; 0: to be solved.
int64_t GivenSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor);

// Runtime::gather_ahead, or what it is if the job does not say. Negative: no bound.
int64_t GatherAhead(const LogicalPlan& plan);

}  // namespace weir::compiler
