// Leaves out what a rank would make for nobody: the data of a shard that no actor reads and no rank
// is sent, say. Thread rule: a pure function of its argument.
#pragma once

#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// Actors without an effect go, and tensors without a producer have `producer` -1. Reports, sends,
// updates and whatever empties a landing buffer stay.
void DropUselessActors(RankGraph* graph);

}  // namespace weir::compiler
