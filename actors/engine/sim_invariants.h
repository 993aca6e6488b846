// Invariants of all ranks together, which must hold after every event of a simulation:
//   I1 per register: free + held by the producer + written by acts that are not done + under way
//   + being read = slots
//   I2 what comes twice, or was made by nobody, is not accepted
//   I3 no slot is bound to a writer while a reader may look at it
//   I4 slots that are in use at the same time do not share memory, nor leave the arena; where a
//   peer writes, from the act
//      that makes a token on, while tokens are under way, and until they have been read
//   I5 nothing is accepted from another epoch or job
// (That tokens of an edge come in order, the rest of I2, is checked by every rank on receipt;
// I7, rest means done, by the engine; I8 is RankExecutor::CheckAtRest; I9, the same bits, by
// who knows the right ones. I6, one committer per step, and I10, checkpoints on disk, wait for
// recovery: nothing commits or restores while a job runs.)
// An actor may write an output over an input that it alone still reads.
//
// After an event only registers of its actor or edge can have changed, so only these are
// looked at; all are every kAllEvery events.
// Thread rule: ranks and network at rest, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "runtime/transport/sim_transport.h"

namespace weir::actors {

class SimInvariants {
 public:
  // Both must outlive this; `ranks` may connect later. Tables are made at the first check.
  SimInvariants(absl::Span<RankExecutor* const> ranks, const transport::SimNetwork& network)
      : ranks_(ranks.begin(), ranks.end()), network_(network) {}

  // kInternal (W0518) naming rank, register and counts.
  absl::Status CheckAll();
  absl::Status CheckActor(int rank, ActorId actor);  // `rank`: position among the ranks
  absl::Status CheckLane(int lane);

 private:
  static constexpr int kAllEvery = 64;

  // A register and who produces it; its slots lie with `holder`.
  struct Row {
    int producer = 0;  // position in ranks_, as holder
    int holder = 0;
    RegisterId producer_register;
    RegisterId holder_register;
    int token_lane = -1;
    int credit_lane = -1;
    std::vector<int> overlaps;  // positions in overlaps_
  };
  // Slots of two registers of a rank that share bytes.
  struct Overlap {
    int rank = 0;
    RegisterId a;
    int32_t a_slot = 0;
    RegisterId b;
    int32_t b_slot = 0;
  };

  void MakeTables();
  void FindOverlaps(int rank);
  bool DueForAll() { return ++num_checks_ % kAllEvery == 0; }
  absl::Status CheckRow(const Row& row) const;
  absl::Status CheckOverlap(const Overlap& overlap) const;
  absl::Status CheckStrangers() const;
  bool InUse(int rank, const PlanRegister& r, int32_t slot) const;
  bool WrittenInPlace(const RankExecutor& rank, RegisterId in, int32_t in_slot, RegisterId out,
                      int32_t out_slot) const;

  const std::vector<RankExecutor*> ranks_;
  const transport::SimNetwork& network_;
  bool made_ = false;
  int64_t num_checks_ = 0;
  absl::Status outside_arena_;  // found while the tables were made
  std::vector<Row> rows_;
  std::vector<IdVector<RegisterId, int>> row_of_register_;          // by rank
  std::vector<IdVector<ActorId, std::vector<int>>> rows_of_actor_;  // by rank
  std::vector<int> row_of_lane_;
  std::vector<Overlap> overlaps_;
};

}  // namespace weir::actors
