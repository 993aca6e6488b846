// What lies in the memory of one rank, when, and why so long: for people, from a finished plan.
// The time of a view is the plan's own: the starts that its certificate gives every act. A token is
// alive from the start of the act that writes it to the end of the last act that reads it; the
// steps of the steady state follow each other, so what one step leaves to the next is seen in both.
// Not a measurement: a device that is late holds tokens longer, and the plan has room for that
// (slots). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/plan.pb.h"

namespace weir::compiler {

struct MemoryView {
  int64_t arena_bytes = 0;
  // What the arena is made of.
  int64_t weight_bytes = 0;
  int64_t optimiser_bytes = 0;  // and other states
  int64_t landing_bytes = 0;    // where other ranks write
  int64_t register_bytes = 0;   // room of all other registers, some of them in one place
  int64_t scratch_bytes = 0;
  int64_t unshared_bytes = 0;  // the arena, if every register had a place of its own

  int64_t iteration_ns =
      0;  // what the columns cover, in equal parts; without start times, or with a quarter of a
          // million acts and more, there are none, and nothing is said of when a tensor is alive
  int64_t steps = 1;  // in an iteration
  struct Column {
    int64_t bytes = 0;  // alive at most
    char phase = '.';   // f, b, w, u: forward, backward, weight gradients, update, whichever is
                        // longest; .: none
  };
  std::vector<Column> columns;
  int64_t most_bytes = 0;  // alive at once
  int64_t most_ns = 0;     // when first
  std::string most_at;     // the actor that starts then

  struct Tensor {
    std::string name;
    int64_t slots = 0;
    int64_t held = 0;         // the most of its slots that are alive at once by the planned starts
    int64_t bytes = 0;        // of all slots
    std::string from, until;  // actors; empty: always
    int64_t alive_ns = 0;     // each token, at most; 0: always
    std::string why;
    int sharers = 0;  // others that use some of its memory at other times
  };
  std::vector<Tensor> largest;
};

MemoryView ViewMemory(const RankPlan& plan, int columns_max, int tensors_max);

// A line of figures, and under it, if there are start times, `rows` lines and a foot.
std::string ChartText(const MemoryView& view, int rows);

// The table of the largest.
std::string LargestText(const MemoryView& view);

}  // namespace weir::compiler
