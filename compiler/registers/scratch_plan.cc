#include "compiler/registers/scratch_plan.h"

#include <algorithm>
#include <numeric>

namespace weir::compiler {

int64_t PlanScratch(std::vector<ScratchBlock>* blocks) {
  std::vector<size_t> order(blocks->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*blocks)[a].bytes > (*blocks)[b].bytes; });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (size_t index : order) {
    ScratchBlock& block = (*blocks)[index];
    int64_t bytes = (block.bytes + 63) / 64 * 64;
    std::vector<std::pair<int64_t, int64_t>> busy;
    for (size_t other : placed) {
      const ScratchBlock& o = (*blocks)[other];
      if (o.first <= block.last && block.first <= o.last)
        busy.push_back({o.offset, o.offset + (o.bytes + 63) / 64 * 64});
    }
    std::sort(busy.begin(), busy.end());
    int64_t at = 0;
    for (const auto& [begin, end] : busy) {
      if (at + bytes <= begin) break;
      at = std::max(at, end);
    }
    block.offset = at;
    total = std::max(total, at + bytes);
    placed.push_back(index);
  }
  return total;
}

}  // namespace weir::compiler
