// The functions of a step that work on weights and their gradients alone: the norm of the
// gradients, the factor that clips them, and the update, also of moving averages. The pass
// build-program calls them.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "compiler/ir/function_builder.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Returns the layout that is P over every axis.
sbp::Layout AllPartial(const sbp::Mesh& mesh);

// Returns the layout of a weight at rest on a stage with this mesh. A zero stage splits the first
// tensor axis that no mesh axis splits and that has at least one unit per part; else the first axis
// that no mesh axis splits; else axis 0.
sbp::Layout LayoutAtRest(const LogicalPlan& plan, const sbp::Mesh& mesh, int zero_stage,
                         const sbp::Layout& compute, const sbp::TensorType& type);

// Arguments: the gradients of `weights`, in the layouts of the weights. Result: the sum of their
// squares, P over the mesh.
void BuildNorm(const std::vector<const Variable*>& weights, const LogicalPlan& plan,
               FunctionBuilder* builder);

// Argument: the factor of the loss scale, B. Result, B: the gradient of the loss of a micro-batch.
void BuildLossSeed(const LogicalPlan& plan, FunctionBuilder* builder);

// Argument: the factor for the gradients of an update, of BuildClip. Result, in place: the factor
// of the loss scale for the next update. The finite steps that count for its growth are a state.
void BuildLossScale(const LogicalPlan& plan, FunctionBuilder* builder);

// Arguments: the sum of the squares of all gradients of an update and, if the loss scale adapts,
// its factor and the mean loss of the update, B. Results: the factor for the gradients, the norm of
// the gradients without loss scale, and the loss scale again, if it adapts, all B.
void BuildClip(const LogicalPlan& plan, FunctionBuilder* builder);

// Argument, B: the sum of the squares of all gradients of an update; the factor for the gradients
// if the loss scale adapts. Result, B: the factor for the samples of moving averages; below 0: the
// update leaves averages as they are, as it leaves weights.
void BuildSampleFactor(const LogicalPlan& plan, FunctionBuilder* builder);

// Arguments: the sums of the samples of `averages` over the micro-batches of an update, in the
// layouts of the averages, and the factor for the samples. Results: the new averages, (1 -
// momentum)
// * average + momentum * mean of the samples.
void BuildAverages(const std::vector<const Variable*>& averages, const LogicalPlan& plan,
                   FunctionBuilder* builder);

// Arguments: the gradients of `weights`, in the layouts of the weights, the factor for the
// gradients, and the old weights of which UpdateReadsWeight (update_graphs.h) is true. Results: the
// new weights. The states of the optimiser are states of the function.
void BuildUpdate(const std::vector<const Variable*>& weights, const LogicalPlan& plan,
                 FunctionBuilder* builder);

// Returns, for each state of a function of BuildUpdate, the place of its weight among `weights`.
std::vector<size_t> WeightsOfStates(const Function& update);

}  // namespace weir::compiler
