// The catalogue of the mutants as the kill table reads it. mutate_sources.py makes the source of
// this header from mutant_table.py. Thread rule: constants.
#pragma once

#include "absl/types/span.h"

namespace weir::chaos {

struct Mutant {
  const char* id;
  const char* what;       // a sentence
  const char* killed_by;  // kKilledByChaos, or the name of a unit test
};

// The mutant is killed when a run of a standard plan fails.
inline constexpr const char* kKilledByChaos = "chaos";

// Returns all mutants, by number.
absl::Span<const Mutant> MutantCatalogue();

}  // namespace weir::chaos
