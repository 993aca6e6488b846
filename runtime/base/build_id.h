// Identifies the build of the program. Processes of one job must be of one build, and check their
// builds before anything else (runtime/control).
// Thread rule: a pure function.
#pragma once

#include <string>

namespace weir {

// Returns the identifier that the linker wrote into the running program (ELF note NT_GNU_BUILD_ID),
// in hexadecimal; "none" if the linker wrote none.
std::string BuildId();

}  // namespace weir
