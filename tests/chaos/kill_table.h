// Turns on each mutant and checks whether the test that the catalogue names finds it. Only for
// programs that link the copies of the sources with mutants. Each mutant runs in its own process,
// because it may crash.
// Thread rule: one thread in the process.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/chaos/mutant_catalogue.h"

namespace weir::chaos {

struct Kill {
  std::string mutant;  // its id; empty if none was on
  bool killed = false;
  std::string by;     // the plan, or the test program, that found the mutant
  uint64_t seed = 0;  // of the plan; 0: a test program found the mutant
  std::string how;    // the message of the check
};

// Plays `seeds` seeds of each standard plan, from 1, until a run fails. `mutant` is a number, or
// kNoMutant.
Kill TryToKillByChaos(int mutant, uint64_t seeds);
// Runs the unit test that the catalogue names, built on the copies, which lies below the current
// folder.
Kill TryToKillByUnitTest(int mutant);

// Tries to kill every mutant by the test that the catalogue names.
std::vector<Kill> MakeKillTable(uint64_t seeds);
void PrintKillTable(const std::vector<Kill>& table, std::ostream& out);

}  // namespace weir::chaos
