// Prints the kill table: which mutants the tests find, and how.
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/chaos/kill_table.h"

int main(int argc, char** argv) {
  uint64_t seeds = 300;
  if (argc > 2 || (argc == 2 && !absl::SimpleAtoi(argv[1], &seeds))) {
    std::cerr << "mutants: expected nothing, or how many seeds of each plan are tried; found '"
              << argv[argc - 1] << "'\n";
    return 2;
  }
  weir::chaos::PrintKillTable(weir::chaos::MakeKillTable(seeds), std::cout);
  return 0;
}
