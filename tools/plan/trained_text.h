// Says how much of a model trains, where not all of it does. Thread rule: pure function.
#pragma once

#include <string>

#include "compiler/compile.h"

namespace weir::plan {

// Returns "2,496 of 10,240 parameters train (24 %)".
std::string TrainedShare(double trained, double all);

// Returns the share of a plan and ", the others are frozen"; "" if the plan trains all parameters,
// or trains nothing because it is a plan for running.
std::string TrainedText(const compiler::LogicalPlan& plan);

}  // namespace weir::plan
