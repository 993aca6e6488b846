// Imports the graph of a job into the compiler's model. The import parses and infers types, checks
// schemas, flattens calls of calls, and gathers the loose nodes of `main` into functions between
// the calls of `main` ("main.0", "main.1"). The import finds every error of a graph (W04xx, W09xx)
// and names the function, the node, the expectation, the finding and the nearest legal choice.
// Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// Returns the checked dimension table of a graph.
absl::StatusOr<std::map<std::string, sbp::TensorDim>> ImportDimTable(const proto::Job& job);

// Returns the dimension table of one micro-batch: the batch dimension (batch_dim.h) is divided by
// the number of micro-batches.
absl::StatusOr<std::map<std::string, sbp::TensorDim>> ImportDims(const proto::Job& job);

// Returns the mode of the plan for which a job is made: kEvaluate for a model without a loss, which
// is only run.
PlanMode ModeOf(const proto::Job& job);

// kInvalidArgument (W0616): the model has no loss (Graph::without_loss), so it cannot be trained.
absl::Status CheckHasLoss(const proto::Job& job);

// kInvalidArgument, of a model without a loss (Graph::without_loss): W0616 in kTrain; W0617 several
// micro-batches; W0618 an output that no node computes, or that is named twice, or no output.
absl::StatusOr<Module> ImportGraph(const proto::Job& job,
                                   const std::map<std::string, sbp::TensorDim>& dims,
                                   PlanMode mode);

}  // namespace weir::compiler
