// Plans offsets for the scratch blocks of one chain of kernels. Blocks whose lifetimes do not
// overlap may share memory. Offsets are multiples of 64.
// Thread rule: pure function.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::compiler {

struct ScratchBlock {
  int64_t bytes = 0;
  int first = 0, last = 0;  // kernels that first write and last read it, inclusive
  int64_t offset = 0;       // out
};

// Assigns offsets and returns the bytes needed. The largest blocks come first, and each block takes
// the lowest place that is free over its lifetime.
int64_t PlanScratch(std::vector<ScratchBlock>* blocks);

}  // namespace weir::compiler
