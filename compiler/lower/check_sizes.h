// Checks the sizes of one rank's share before anything is planned with them, so that no sum of
// bytes overflows. Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// kInvalidArgument (W0480, W0486): sizes or counts are beyond any device, whatever the slots.
absl::Status CheckSizes(const RankGraph& graph);

// The same check (W0480) with the bytes of all slots of all registers in place of one slot each.
absl::Status CheckBytes(const RankGraph& graph, double register_bytes);

}  // namespace weir::compiler
