// The weights of a graph by name, as they are before the graph is compiled: which parameter of
// which function each of them is. A function that is called many times has a weight in each call.
// Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/graph.pb.h"

namespace weir::adapters {

struct GraphWeight {
  int function = 0;   // in Graph::function
  int parameter = 0;  // in Function::parameter
  std::string name;   // "layers.3.wq"
};

// Returns the weights in the order of calls. Precondition: the graph compiles. Errors are those of
// a compilation.
absl::StatusOr<std::vector<GraphWeight>> WeightsOfGraph(const proto::Graph& graph);

}  // namespace weir::adapters
