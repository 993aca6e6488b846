// The memory of this process that the system keeps in RAM. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace weir::limits {

// Returns the resident bytes of this process, memory that it shares with others included. 0: the
// system does not tell.
int64_t OwnResidentBytes();

}  // namespace weir::limits
