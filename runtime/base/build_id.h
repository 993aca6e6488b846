// Which build of the program this is. Processes of one job must be of one build: they check
// it before anything else (runtime/control).
// Thread rule: a pure function.
#pragma once

#include <string>

namespace weir {

// The identifier that the linker wrote into the running program (ELF note NT_GNU_BUILD_ID), in
// hexadecimal; "none" if it wrote none.
std::string BuildId();

}  // namespace weir
