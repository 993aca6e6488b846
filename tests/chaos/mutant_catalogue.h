// The catalogue of the mutants as the kill table reads it. mutate_sources.py makes the source of
// this header from mutant_table.py. Thread rule: constants.
#pragma once

#include "absl/types/span.h"

namespace weir::chaos {

struct Mutant {
  const char* id;
  const char* what;       // a sentence
  const char* killed_by;  // kKilledByChaos or kKilledByLedgerTest
};

// The mutant is killed when a run of a standard plan fails.
inline constexpr const char* kKilledByChaos = "chaos";
// The mutant is killed when the unit tests of the message ledger fail.
inline constexpr const char* kKilledByLedgerTest = "message_ledger_test";

// Returns all mutants, by number.
absl::Span<const Mutant> MutantCatalogue();

}  // namespace weir::chaos
