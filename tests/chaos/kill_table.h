// Plants each bug in turn and checks whether the regression seeds find it. The
// sources of the program must be compiled with WEIR_PLANTED_BUGS. Each bug runs in its own process,
// because it may crash.
// Thread rule: one thread in the process.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/chaos/bug_catalogue.h"

namespace weir::chaos {

struct Kill {
  std::string name;
  std::string what;
  bool killed = false;
  std::string plan;  // the plan that found the bug
  uint64_t seed = 0;
  std::string how;  // the message of the check
};

// Plays `seeds` seeds of each standard plan, from 1, until a run fails.
Kill TryToKill(PlantedBug bug, const std::string& name, const std::string& what, uint64_t seeds);
std::vector<Kill> MakeKillTable(uint64_t seeds);
void PrintKillTable(const std::vector<Kill>& table, std::ostream& out);

}  // namespace weir::chaos
