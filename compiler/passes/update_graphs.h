// The update of one weight as a graph of ops: one for each optimiser (decision 45). Whatever an
// optimiser needs of a weight as a whole (a norm, means of rows and columns, products of matrices)
// is an op on the logical tensor, and sums over split axes are partial values that are boxed. So
// every layout and every stage of ZeRO gives one device's results.
//
// Thread rule: pure functions.
#pragma once

#include "compiler/ir/function_builder.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Returns whether the update of the variable reads the old weight as an operand.
bool UpdateReadsWeight(const LogicalPlan& plan, const Variable& variable);

// Adds the update of `variable` to a function and returns the new weight, which the last node that
// the update adds outputs. `weight` is the old weight if UpdateReadsWeight, else -1. The states of
// the optimiser become states of the function.
ops::ValueId AddUpdateOf(const LogicalPlan& plan, const Variable& variable, ops::ValueId gradient,
                         ops::ValueId scale, ops::ValueId weight, FunctionBuilder* builder);

// Adds the average of a weight that has been updated, as a state.
void AddAverageOf(const LogicalPlan& plan, const Variable& variable, ops::ValueId updated,
                  ops::ValueId scale, FunctionBuilder* builder);

// The name of the state that AddAverageOf makes.
inline constexpr char kAverageState[] = "average";

}  // namespace weir::compiler
