// The ranks of a job that the ranks of its trace stand for. A simulation by symmetry has one rank
// for each class of ranks that do the same; every other trace has each rank itself.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/trace.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/rank_ranges.h"

namespace weir::trace {

// A RankClass is a rank that a trace holds, with the ranks that it stands for, itself included.
struct RankClass {
  RankId rank;
  RankRanges ranks;
};

// Returns the class of a rank: the rank alone if the facts tell of no class, or of an impossible
// one.
RankClass ClassOf(RankId rank, const proto::PlanFacts& facts);
RankClass ClassOfItself(RankId rank);

// Returns the ranks from 0 to `num_ranks`, exclusive, that are in no class, ascending.
std::vector<RankId> RanksInNoClass(int64_t num_ranks, const std::vector<RankClass>& classes);

// Returns the name of a device with the number of ranks that it stands for: "rank 0 · stage 0
// x512"; the name alone if the device stands for itself.
std::string NameOfClass(const std::string& name, const RankRanges& ranks);

// Returns "1024 ranks are simulated by 2: rank 0 stands for ranks 0 to 511, ..."; empty if each
// rank stands for itself.
std::string SymmetryText(const std::vector<RankClass>& classes);

}  // namespace weir::trace
