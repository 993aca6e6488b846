// Cuts a function into segments. A segment is a chain of kernels between two transfers and becomes
// one actor. A boxing that moves bytes separates segments. A boxing that only slices or fills zeros
// is a kernel like any other. The cut depends on the function and the mesh of its stages, not on
// the rank. Thread rule: pure functions.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/transfer/transfer_lowering.h"
#include "sbp/boxing.h"

namespace weir::compiler {

// Transfers after segment `depth` that run together.
struct TransferBundle {
  int depth = 0;
  std::vector<int> nodes;  // boxing nodes of the function
  MovedTensors moved;      // by node; all at Function::stage_of_mesh
};

struct SegmentedFunction {
  std::vector<std::vector<int>> segments;  // nodes of each, in order; may be empty
  std::vector<TransferBundle> transfers;
  std::map<int, std::vector<sbp::BoxingStep>> local_boxings;  // by node: steps without transfers
};

absl::StatusOr<SegmentedFunction> CutSegments(const Function& function, const sbp::Places& places);

// Finds values that share memory because of reshapes among `nodes`. Returns {value: the value in
// whose memory it lies} for values that share one. A reshape needs no copy if both of its sides may
// lie in the same place, so a chain of reshapes is one place: the place of the first member that
// enters or leaves the segment. `operand_of`, by value: the operand that the value is outside the
// segment; -1: none.
std::map<ops::ValueId, ops::ValueId> ShareReshapes(const Function& function,
                                                   const SegmentedFunction& segmented,
                                                   const std::vector<int>& nodes,
                                                   const std::vector<int>& operand_of);

}  // namespace weir::compiler
