// Finds stages that do equal work. The stages in the middle of a pipeline mostly call the same
// functions in the same order, so a rank of one such stage acts for as long, and has registers as
// large, as the rank in the same position of another. One lowered rank then gives the times and
// sizes of all of them. The names, and the ranks at the far ends of messages, differ between twins.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// A StageTwin leads from the stage whose rank is lowered (the first of the twins) to one of its
// twins. The first stage is a twin of itself.
struct StageTwin {
  // An Item says what stands on the twin in the place of an item of the first stage.
  struct Item {
    int item = -1;       // -1: the item is not of the first stage
    int64_t other = -1;  // the other stage of a boxing between stages, or else the twin
  };
  int64_t first = 0;
  int64_t stage = 0;
  std::vector<Item> items;  // by item of the program

  Station Of(const Station& station) const { return {items[station.item].item, station.index}; }
  // Returns the rank of the twin's messages that has the position of `peer`. `peer` is a rank at
  // the far end of a message of the first stage, and `item` is the message's item there.
  RankId PeerOf(const sbp::Places& places, int item, RankId peer) const {
    const int64_t place = places.PlaceOf(peer) == first ? stage : items[item].other;
    return places.RankAt(place, places.DeviceOf(peer));
  }
};

// Returns the twins of each stage, the stage itself included, in the place of the first of them;
// the list of a stage that is the twin of an earlier one is empty. Precondition: plan.stages is
// filled in.
std::vector<std::vector<StageTwin>> FindStageTwins(const LogicalPlan& plan);

}  // namespace weir::compiler
