// Explains how the mesh of a plan lies over hosts. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tools/plan/boxing_costs.h"

namespace weir::plan {

// Returns "2 of 4 devices; tp inside them, dp between them; 1.2 MiB a step between hosts". Empty if
// the plan knows of one host. `boxings` are those of the plan.
std::string HostsText(const compiler::LogicalPlan& plan, const std::vector<BoxingCost>& boxings);

// An order of a mesh's axes that sends much less between hosts than the mesh's own.
struct BetterMesh {
  std::string mesh;  // as --mesh takes it
  double bytes = 0, bytes_now = 0;
};

// Compiles the job with other orders of the axes. Returns nullopt if none is much better, or if
// that would take long.
std::optional<BetterMesh> FindBetterMesh(const compiler::LogicalPlan& plan,
                                         const std::vector<BoxingCost>& boxings,
                                         const compiler::CostModel& costs);

}  // namespace weir::plan
