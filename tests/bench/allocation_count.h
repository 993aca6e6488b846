// Counts how often this program has asked for memory, in any way. A link with allocation_count.cc
// puts a count in front of malloc and its relatives, including operator new and all libraries.
// Thread rule: any thread.
#pragma once

#include <cstdint>

namespace weir::bench {

int64_t NumAllocations();

}  // namespace weir::bench
