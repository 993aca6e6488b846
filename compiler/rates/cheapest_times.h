// Times under differences that cost least: minimises
//   sum over charges of  cost * max(0, time(to) - time(from) - free)     subject to     time(to) >= time(from) + weight.
// The dual is a min-cost circulation: differences are arcs without limit, charges arcs back with capacity `cost`. It is
// solved by the network simplex method (Dantzig 1951; strongly feasible trees, Cunningham 1976), which starts from the
// tree of the latest times.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/rates/difference_system.h"

namespace weir::compiler {

struct Charge {
  int from = -1;
  int to = -1;
  int64_t free = 0;
  int64_t cost = 0;  // >= 0; the sum of all costs stays below 2^62
};

// Times, the smallest of which is 0; nothing if no times keep the differences. Exact in integers.
std::optional<std::vector<int64_t>> CheapestTimes(int num_nodes, std::span<const Difference> differences,
                                                  std::span<const Charge> charges);

}  // namespace weir::compiler
