// Decides whether one plan gives the memory of several stages. Twins (rhythm/stage_twins.h) do
// equal work. Two such stages have equal memory if their ranks in one position also have registers
// of equal sizes in the same order, so that nothing that the placing of memory reads differs but
// slots. Slots differ mostly: an earlier stage of a pipeline has more micro-batches under way.
// Thread rule: pure function.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compiler/ir/logical_plan.h"
#include "compiler/rhythm/stage_twins.h"

namespace weir::compiler {

// Returns, by name of a weight of the first stage, the weight in its place on the twin. None: the
// memory may differ in more than slots. Precondition: `twin` is one of FindStageTwins(plan).
std::optional<std::map<std::string, std::string>> PairWeights(const LogicalPlan& plan,
                                                              const StageTwin& twin);

}  // namespace weir::compiler
