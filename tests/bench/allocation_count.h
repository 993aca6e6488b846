// How often this program has asked for memory, by whatever way: linking
// allocation_count.cc puts a count in front of malloc and its kin, operator new and
// all libraries included.
// Thread rule: any thread.
#pragma once

#include <cstdint>

namespace weir::bench {

int64_t NumAllocations();

}  // namespace weir::bench
