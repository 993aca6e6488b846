// Says which pass of a compilation begins. Thread rule: a value.
#pragma once

#include <string>

namespace weir::compiler {

struct PassProgress {
  std::string pass;
  int done = 0;       // of the passes that run, and
  int of = 0;         // how many there are
  int functions = 0;  // of the module
};

}  // namespace weir::compiler
