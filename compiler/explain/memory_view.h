// A view of one rank's memory, for people: the tensors that lie there, when, and why for so long.
// The view is made from a finished plan and uses the plan's own times: the start that the
// certificate gives every act. A token is alive from the start of the act that writes it to the end
// of the last act that reads it. The view shows the steady state, in which steps follow each other,
// so a token that one step leaves to the next is seen in both. The view is not a measurement: a
// late device holds tokens longer, and the slots of the plan have room for that. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace weir::compiler {

struct MemoryView {
  int64_t arena_bytes = 0;
  // The parts of the arena, which together are no more than it.
  int64_t weight_bytes = 0;
  int64_t optimiser_bytes = 0;  // and other states
  int64_t landing_bytes = 0;    // where other ranks write; a place that several share counts once
  int64_t register_bytes = 0;   // room of all other registers; some share a place
  int64_t scratch_bytes = 0;
  int64_t unshared_bytes = 0;  // the arena, if every register had a place of its own

  // The time that the columns cover in equal parts. There are no columns and no lifetimes if the
  // plan has no start times, or has a quarter of a million acts or more.
  int64_t iteration_ns = 0;
  int64_t steps = 1;  // in an iteration
  struct Column {
    int64_t bytes = 0;  // the most that is alive in the column
    // The phase that takes most of the column: f, b, w, u: forward, backward, weight gradients,
    // update; .: none.
    char phase = '.';
  };
  std::vector<Column> columns;
  int64_t most_bytes = 0;  // the most that is alive at once
  int64_t most_ns = 0;     // the first time of `most_bytes`
  std::string most_at;     // the actor that starts at `most_ns`

  struct Tensor {
    std::string name;
    int64_t slots = 0;
    // The most slots that are alive at once, by the planned starts.
    int64_t held = 0;
    int64_t bytes = 0;        // of all slots
    std::string from, until;  // actors; empty: always
    int64_t alive_ns = 0;     // of a token, at most; 0: always
    std::string why;
    int sharers = 0;  // other tensors that use some of the memory at other times
  };
  std::vector<Tensor> largest;
};

MemoryView ViewMemory(const proto::RankPlan& plan, int columns_max, int tensors_max);

// Returns a line of figures. If the plan has start times, `rows` lines of the chart and a foot line
// follow.
std::string ChartText(const MemoryView& view, int rows);

// Returns the table of the largest tensors.
std::string LargestText(const MemoryView& view);

}  // namespace weir::compiler
