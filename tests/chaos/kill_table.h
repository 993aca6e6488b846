// Plants each bug in turn and looks whether the regression seeds find it. Only in programs
// whose sources are compiled with WEIR_PLANTED_BUGS.
// Each bug lives in a process of its own, since it may crash.
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
  std::string plan;  // on which
  uint64_t seed = 0;
  std::string how;  // what the check said
};

// `seeds` of each standard plan, from 1, until one fails.
Kill TryToKill(PlantedBug bug, const std::string& name, const std::string& what, uint64_t seeds);
std::vector<Kill> MakeKillTable(uint64_t seeds);
void PrintKillTable(const std::vector<Kill>& table, std::ostream& out);

}  // namespace weir::chaos
