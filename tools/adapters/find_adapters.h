// Reads the adapters of a graph back from its nodes, in the form that add_adapters.h writes. The
// nodes say what is computed, so what is merged by them computes the same.
// Thread rule: pure function.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/graph.pb.h"

namespace weir::adapters {

// The weight acts as weight + factor * a b; as weight + factor * b a if it is [out, in].
struct Adapter {
  std::string weight, a, b;  // names of weights: "layers.0.wq", "layers.0.wq.lora_a", …
  double factor = 1;
  bool is_transposed = false;
};

// Returns the adapters in the order of calls; none: the graph has none. Precondition: the graph
// compiles. kInvalidArgument (W0852): parameters with the names of adapters are not used in the
// form of adapters.
absl::StatusOr<std::vector<Adapter>> FindAdapters(const proto::Graph& graph);

}  // namespace weir::adapters
