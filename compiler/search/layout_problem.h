// The layouts of a model as a problem of choices (min_sum.h). The functions of the model are in it
// once each, with the number of their calls as a weight:
//
//   variable   its choices                                            its own cost
//   node       a legal signature for all axes of the mesh together    kernels; gradients, update
//   and
//                                                                     memory of its parameters
//   value      a layout, if several nodes read the value: they        memory
//              share the boxing
//   border     a layout of all tensors with the same dimensions that  none
//              enter or leave functions: rules give them one
//   pair       maker and reader of a value                            boxing, forward and backward
//
// The axes are never chosen one by one: each alone would split the batch. The backward pass follows
// from the forward pass: where a signature splits a factor, the gradient of an operand without this
// factor is partial, and the gradient of a partial result is whole. The compiler chooses layouts of
// gradients by itself, so these costs are an estimate of what it will find; step_estimate.h looks
// at the compiled functions. Thread rule: plain data and pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/boxing_cost.h"
#include "compiler/ir/ir.h"
#include "compiler/search/min_sum.h"
#include "sbp/factor_rule.h"

namespace weir::compiler {

struct LayoutProblemOptions {
  const CostModel* costs = nullptr;
  BoxingCosts* boxings = nullptr;  // of the job's places, whose first mesh is `mesh`
  sbp::Mesh mesh;
  std::map<std::string, sbp::TensorDim> dims;  // of a micro-batch
  double micro_batches = 1;                    // of an update
  int zero_stage = 0;
  int zero_axis = -1;  // of `mesh`; -1: none
  int states = 2;      // tensors like a weight that the optimiser keeps for it
  // The price of memory in the time of a step: a multiplier. `kept` micro-batches of what the
  // forward pass keeps lie in memory, of 1 / `stages` of the model.
  double ns_per_byte = 0;
  double kept = 1;
  double stages = 1;
};

struct FunctionCalls {
  const Function* function = nullptr;  // forward
  int num_results = 0;                 // that other functions read
  double calls = 1;
};

// A choice of one node: the position of an AxisSignature, for each axis of the mesh.
struct NodeChoices {
  int use = 0;   // of the functions
  int node = 0;  // of Function::nodes
  sbp::FactorRule rule;
  std::vector<sbp::AxisSignature> signatures;  // LegalSignatures(rule)
  std::vector<char> usable;                    // by signature: units agree, partials may pass
  std::vector<std::vector<int>> choices;       // by choice, by axis: a signature
  std::vector<int> parameters;                 // operands that are parameters
  double weight = 0;                           // the time of the node on one device, of all calls
};

struct BorderChoices {
  std::vector<std::string> dims;     // names
  std::vector<sbp::Layout> choices;  // S and B
};

struct LayoutProblem {
  MinSumProblem problem;
  std::vector<NodeChoices> nodes;      // variable i < nodes.size() is nodes[i]
  std::vector<BorderChoices> borders;  // of variable first_border + i
  int first_border = 0;
};

// Returns the problem of functions whose types are inferred. Boxings in the functions count as if
// they were not there. Errors: those of the ops.
absl::StatusOr<LayoutProblem> MakeLayoutProblem(const std::vector<FunctionCalls>& functions,
                                                const LayoutProblemOptions& options);

}  // namespace weir::compiler
