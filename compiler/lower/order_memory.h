// Orders among the calls of a pass, for memory: what a call exchanges with other ranks lives
// briefly (weights gathered for it, gradients on their way, partial sums between two transfers), so
// a few calls' worth of room is enough for all of them, if a call's turn comes only once what lay
// there has been read.
//
// Calls take turns on a ring: those of one pass of one part of the pipeline, in the order of the
// program and around from micro-batch to micro-batch; one ring of all, where a single stage holds
// one micro-batch at a time. With `ahead` = Runtime::gather_ahead, calls that are `ahead` + 1
// places apart on the ring are tied:
//   - the weights of the later one (zero_stage 3) are gathered once the earlier one is done,
//   - the later one begins once what the earlier one sends has left (gradients from zero_stage 2
//   on, partial sums).
//
//   ahead = 1    compute   F0   F1   F2   F3
//                gather    F1   F2   F3   F4      the gather of F2 waits for F0
//
// Where other ranks write (landing buffers), an order here cannot hold them up; but the ranks of a
// stage do the same. So the gathers of a ring are tied to each other, and so are its gradients'
// exchanges: a rank sends for one (B) once it has filled in what it got in the one before (A). Then
// a peer's message for B is under way only after this rank has sent that peer its own for A, which
// it did only after its fill of the exchange before A: two landing buffers serve them all. What
// these move lands whole (unless the job says how large chunks are), so that nobody waits for
// credits while a device computes.
//
// An order is a token without bytes. All of them point forward in the program, or from its end to
// the next micro-batch, as all data does; so they close no circle that the program, micro-batch
// after micro-batch, could not go around. Which orders there are depends on the program and the
// stage, not on the rank, because all ranks of a stage share their times (compiler/rhythm): they
// are found once, between the stations of the stage's shape, and a rank takes those between
// stations that it has. They are there before times and slots are solved, so the certificate proves
// them too. Not here: which registers share a place (place_memory.h finds that from the orders).
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

// Who takes turns with whom, as all ranks of a stage know it.
class MemoryRings {
 public:
  MemoryRings(const LogicalPlan& plan, int64_t stage);

  enum class Role : uint8_t {
    kNone,
    kCall,      // takes turns
    kGather,    // fetches weights for a call
    kGradient,  // moves gradients that a call made
    kValue,     // moves what a call made for another
    kSum,       // a call that sums up moved gradients
  };
  Role RoleOf(int item) const { return members_[item].role; }
  int CallOf(int item) const { return members_[item].call; }  // item; of kNone: -1
  // Whether what an item moves is to land in one piece.
  bool LandsWhole(int item) const;

  // Items in the order of the program.
  struct Ring {
    std::vector<int> calls, gathers, gradients;
  };
  std::vector<Ring> rings() const;
  size_t apart() const { return static_cast<size_t>(ahead_) + 1; }

 private:
  struct Member {
    Role role = Role::kNone;
    int call = -1;
  };
  using Key = std::pair<Wave, int64_t>;  // pass and part
  void FindCalls();
  void FindMoves();

  const LogicalPlan& plan_;
  const int64_t stage_;
  const int64_t ahead_;
  std::vector<Member> members_;  // by item
  std::map<int, Key> key_of_;    // by call
  std::map<Key, Ring> rings_;
};

// The orders of a stage. Precondition: `shape` is the graph of its StageShape; producers and
// consumers of all tensors are known.
std::vector<MemoryOrder> FindMemoryOrders(const LogicalPlan& plan, const MemoryRings& rings,
                                          const RankGraph& shape);

// Adds the stage's orders to what was lowered of the same plan and stage, and what follows from
// them for landing buffers. Precondition: producers and consumers of all tensors are known.
void OrderMemory(const LogicalPlan& plan, const MemoryRings& rings,
                 const std::vector<MemoryOrder>& orders, RankGraph* graph);

}  // namespace weir::compiler
