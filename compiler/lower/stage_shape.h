// What the ranks of a stage do, taken together: a rank that has its part in every exchange,
// reports, and reads whatever some rank of the stage reads. A rank with an empty shard, or with
// nobody to send to, does less, and never anything else:
//   - its stations are among these,
//   - of each of its tensors, the readers are among those here, and the slots are those here,
//   - its orders for memory are those of these between stations that it has.
// So every wait of every rank is a wait of this graph, and start times that hold for it hold on all
// ranks, however many there are and however uneven their shards (rhythm/station_graph.h). The shape
// says nothing about sizes and peers. Made by ShapeStages (rank_lowering.h) from the logical plan
// alone. Thread rule: plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// Acts of the stations `after` for micro-batch n begin when those of `before` for micro-batch n -
// lag are done.
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
  RankGraph
      graph;  // one actor for each station, without kernels; its rank is the first of the stage
  std::map<std::pair<Station, int>, Tensor>
      tensors;  // local ones, by the station that makes them and its output
  std::vector<MemoryOrder> orders;
  struct Gate {
    Station before, after;
  };
  std::optional<Gate>
      gate;  // GPipe: the last forward pass of the loss, and the first backward pass
};

}  // namespace weir::compiler
