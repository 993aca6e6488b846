// Finds which dimensions of a graph are the same, from the factor rules of its ops alone: what an
// op maps to one factor is one dimension. Names and equal sizes decide nothing, so a model of which
// nobody named the dimensions gives the same result as one with names.
// Thread rule: pure function.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/dims/dim_atoms.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// A dimension that stands in the text of a graph.
struct WrittenDim {
  enum class Place : uint8_t { kInput, kParameter, kAttribute };
  Place place = Place::kInput;
  int function = 0;   // of Graph::function
  int index = 0;      // of the input, the parameter or the node in the function
  int attribute = 0;  // kAttribute: of Node::attr
  int axis = 0;
  std::string tensor;     // "block.q_proj.weight"; an attribute: its node
  std::string item = {};  // as written: "heads=4/1"
  std::string name = {};  // of the item
  int64_t size = 0;
  DimAtoms::Dim dim = {};
};

// A dimension of an operand that an op reads.
struct OperandDim {
  std::string op;
  int operand = 0;  // of the inputs
  int axis = 0;     // from 0
  int rank = 0;     // of the operand
  std::string node;
  DimAtoms::Dim dim;
};

struct GraphDims {
  DimAtoms atoms;
  std::vector<WrittenDim> written;
  std::vector<OperandDim> operands;
  // The parameters that a product reads as [in, out], called as WrittenDim::tensor: the matrices
  // that most files of weights hold as [out, in].
  std::set<std::string> turned;
};

// The dimensions of one node that is no call.
struct NodeDims {
  int function = 0;                                           // of Graph::function
  int node = 0;                                               // of the function
  std::vector<std::vector<DimAtoms::Dim>> operands, results;  // by operand and axis
  std::vector<DimAtoms::Dim> whole;  // of the factors that the op needs whole
};

struct GraphNodeDims {
  GraphDims dims;
  std::vector<NodeDims> nodes;  // in the order of the walk
};

// Returns whether an importer made up the name of a dimension: "_" and digits.
bool IsProvisional(const std::string& name);

// Returns all dimensions of the functions that `main` reaches, resolved. A call joins the
// dimensions of its arguments with those of the function's inputs, so all calls of a function share
// its dimensions. An error is one of ImportGraph (import_graph.h). In a graph with provisional
// names, an error calls a dimension by its size, "n64".
absl::StatusOr<GraphDims> FindDims(const proto::Job& job);
// Returns the dimensions of the nodes, too. The graph must be right for plans of `mode`.
absl::StatusOr<GraphNodeDims> FindNodeDims(const proto::Job& job, PlanMode mode);

}  // namespace weir::compiler
