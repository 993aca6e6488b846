// Names for the dimensions that FindDims finds. A name is a label: rules of a job speak about it,
// and what a layout may be follows from the ops, so a poor name makes no wrong plan. Thread rule:
// pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler/dims/find_dims.h"
#include "proto/job.pb.h"

namespace weir::compiler {

struct DimName {
  int atom = -1;
  int64_t size = 0;
  std::string name;
  std::string why;  // "given by input tokens", "heads of attention", "q_proj.weight[0]"
  // The parameters with the dimension: "block.q_proj.weight[0]". A dimension that is a product has
  // the name of each of its atoms.
  std::vector<std::string> parameters;
  // The tensors that have the dimension twice. A rule can split one of the two alone.
  std::vector<std::string> twice;
};

// Returns a name for each atom of the graph that stands in some text, in the order in which they
// first stand there. The first of these gives the name: the graph, if it names the dimension; the
// name of a parameter that many models share, such as q_proj.weight; the op that reads the
// dimension; the parameter with the dimension. Two atoms have one name only if they have one size
// and the graph, a parameter or an op gives both this name.
std::vector<DimName> NameDims(const GraphDims& dims);

// Replaces the provisional names in the text of the job's graph and adds the new names to its table
// of dimensions. A dimension that is a product of atoms becomes "heads*head_dim". If the graph
// gives one dimension several names, the first one replaces the others. Rules and
// training.batch_dim that speak of a replaced name follow. A job without provisional names stays as
// it is.
void ReplaceProvisional(const GraphDims& dims, const std::vector<DimName>& names, proto::Job* job);

}  // namespace weir::compiler
