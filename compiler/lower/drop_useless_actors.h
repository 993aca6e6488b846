// Removes actors whose results no rank uses, for example the data of a shard that no actor reads
// and no rank receives. Thread rule: a pure function of its argument.
#pragma once

#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// Removes actors without an effect. Tensors whose producer goes have none. Reports, sends,
// updates and all actors that empty a landing buffer stay.
void DropUselessActors(RankGraph* graph);

}  // namespace weir::compiler
