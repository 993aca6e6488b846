#include "tests/chaos/mutant_switch.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/types/span.h"
#include "tests/chaos/mutant_catalogue.h"

namespace weir::chaos {
namespace {

int MutantOfEnvironment() {
  const char* id = std::getenv("WEIR_MUTANT");
  if (id == nullptr) return kNoMutant;
  const absl::Span<const Mutant> mutants = MutantCatalogue();
  for (size_t i = 0; i < mutants.size(); ++i) {
    if (std::string_view(mutants[i].id) == id) return static_cast<int>(i);
  }
  std::fprintf(stderr, "WEIR_MUTANT: expected a mutant of mutant_table.py; found '%s'\n", id);
  std::exit(2);
}

}  // namespace

constinit int mutant_on = kNoMutant;

void TurnOn(int mutant) { mutant_on = mutant; }

namespace {
[[maybe_unused]] const bool kEnvironmentIsRead = (TurnOn(MutantOfEnvironment()), true);
}  // namespace

}  // namespace weir::chaos
