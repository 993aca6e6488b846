// The switch of the mutants: at most one mutant of mutant_table.py is on in a process, and the
// process then runs that wrong version of the product's code. Copies of the product's sources ask
// the switch wherever a mutant differs. The environment variable WEIR_MUTANT names the mutant that
// is on when the process starts; without the variable none is.
// Thread rule: TurnOn before anything runs; MutantIsOn any time.
#pragma once

namespace weir::chaos {

inline constexpr int kNoMutant = -1;

// The number of the mutant that is on; kNoMutant if none is. Only TurnOn writes this variable.
extern int mutant_on;

// A mutant's number is its place in MutantCatalogue().
inline bool MutantIsOn(int mutant) { return mutant == mutant_on; }
void TurnOn(int mutant);

}  // namespace weir::chaos
