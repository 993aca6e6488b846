// The combined work of the ranks of a stage, as the graph of one rank. That rank has a part in
// every exchange, reports, and reads all tensors that some rank of the stage reads. A real rank
// with an empty shard, or without a rank to send to, does less, but never anything else:
//   - the stations of a real rank are among the stations here,
//   - the readers of each of its tensors are among the readers here, and the slots are the same,
//   - its memory orders are the orders here between stations that the rank has.
// Every wait of a real rank is therefore a wait of this graph, and start times that hold here hold
// on all ranks, however many the ranks are and however uneven their shards
// (rhythm/station_graph.h). The shape says nothing about sizes and peers. ShapeStages
// (rank_lowering.h) makes the shape from the logical plan alone. Thread rule: plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// The acts of the stations `after` for micro-batch n begin when the acts of `before` for
// micro-batch n - lag are done.
struct MemoryOrder {
  Station before;
  std::vector<Station> after;  // ascending
  int64_t lag = 0;
};

struct StageShape {
  struct Tensor {
    std::vector<Station> readers;  // ascending
    int64_t slots = 0;             // given by the job's choice; 0: to be solved
  };
  // The graph has one actor for each station. The rank of the graph is the first rank of the stage.
  // The actors of calls have the kernels of that rank, and the actors of transfers have none.
  RankGraph graph;
  // Local tensors, by the station that makes them and its output.
  std::map<std::pair<Station, int>, Tensor> tensors;
  std::vector<MemoryOrder> orders;
  struct Gate {
    Station before, after;
  };
  // GPipe: the last forward pass of the loss, and the first backward pass.
  std::optional<Gate> gate;
};

// Returns the shapes of all stages as stable text, for dumps.
std::string ToText(const std::vector<StageShape>& stages);

}  // namespace weir::compiler
