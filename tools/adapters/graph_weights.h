// The weights of a graph by name, as they are before the graph is compiled: which parameter of
// which function each of them is, and how products take them. A function that is called many times
// has a weight in each call.
// Thread rule: pure functions.
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

// Returns the attribute of a node; null: the node has none of that name.
const proto::Attr* AttrOf(const proto::Node& node, const std::string& name);
// Returns whether a product takes its weight as [out, in].
bool IsTransposed(const proto::Node& product);

}  // namespace weir::adapters
