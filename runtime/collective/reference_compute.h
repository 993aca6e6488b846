// These functions compute what collectives compute, written down plainly for all ranks at once.
// Thread rule: pure functions over the memory that the operations name; all ranks' memory is
// readable and writable.
#pragma once

#include <vector>

#include "runtime/collective/collective.h"

namespace weir::collective {

// Does the operation of all ranks, in place where they say so. `operations` has one for each rank
// of the group, alike but for their addresses.
void Compute(const std::vector<Operation>& operations);

// The moves of one rank, which own their lists.
struct OwnMoves {
  DType dtype = DType::kF32;
  std::vector<SendMove> sends;
  std::vector<ReceiveMove> receives;
};
// A send and a receive that do not fit, or a move without a partner (a count of -1).
struct MoveMismatch {
  int from_rank = 0;
  int to_rank = 0;
  int64_t sent = -1;
  int64_t received = -1;
};
// Returns what does not fit, if anything. `moves` has those of each rank of the group.
std::vector<MoveMismatch> Mismatches(const std::vector<OwnMoves>& moves);
// Does the moves of all ranks. Precondition: no mismatches.
void Compute(const std::vector<OwnMoves>& moves);

}  // namespace weir::collective
