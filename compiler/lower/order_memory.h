// Orders the calls of a pass to save memory. The data that a call exchanges with other ranks lives
// briefly: weights gathered for the call, gradients on their way, partial sums between two
// transfers. Room for a few calls is therefore enough for all calls, if a call uses the room only
// after the data of an earlier call there has been read.
//
// A ring holds the calls of one pass of one part of the pipeline, in the order of the program, and
// goes around once for each micro-batch. If a single stage holds one micro-batch at a time, one
// ring holds all calls. A window of `ahead` + 1 calls moves around the ring, where `ahead` is
// Runtime::gather_ahead, and there is room for the calls of the window. So two calls that are
// `ahead` + 1 places apart on the ring are tied:
//   - the gather of the later call's weights (zero_stage 3) begins when the earlier call is done,
//   - the later call begins when the data that the earlier call sends has left (gradients from
//     zero_stage 2 on, partial sums).
//
//   ahead = 1    compute   F0   F1   F2   F3
//                gather    F1   F2   F3   F4      the gather of F2 waits for F0
//
// An order on one rank cannot delay the writes of other ranks into its landing buffers. But all
// ranks of a stage keep the same orders, so the gathers of a ring are also tied to each other, and
// so are the exchanges of the ring's gradients: a rank sends for an exchange B only after its fill
// of the exchange A before B. A peer therefore sends its message for B only after its own fill of
// A, for which this rank has sent a message. This rank sent that message only after its fill of the
// exchange before A. Two landing buffers therefore serve all exchanges. The tensors of these
// exchanges land whole (unless the job sets the size of chunks), so that no transfer waits for
// credits while a device computes.
//
// An order is a token without bytes. Every order points forward in the program, or from the end of
// the program to the next micro-batch, as all data does. Orders therefore cannot cause a deadlock:
// a run through the program, micro-batch after micro-batch, keeps all of them. The orders depend on
// the program and the stage and not on the rank, because all ranks of a stage share their times
// (compiler/rhythm). The compiler finds the orders once, between the stations of the stage's shape,
// and a rank takes the orders between the stations that it has. The orders exist before times and
// slots are solved, so the certificate proves the orders too. Not here: the choice of registers
// that share a place (place_memory.h derives that from the orders). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// The rings of a stage, and the role of every program item in them. Equal on all ranks of the
// stage.
class MemoryRings {
 public:
  MemoryRings(const LogicalPlan& plan, int64_t stage);

  enum class Role : uint8_t {
    kNone,
    kCall,      // has a place on a ring
    kGather,    // fetches weights for a call
    kGradient,  // moves gradients that a call made
    kValue,     // moves values that a call made for another
    kSum,       // a call that sums up moved gradients
  };
  Role RoleOf(int item) const { return members_[item].role; }
  int CallOf(int item) const { return members_[item].call; }  // of kNone: -1
  // Returns whether the tensors that an item moves must land in one piece.
  bool LandsWhole(int item) const;

  // The items of a ring, in the order of the program.
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

// Returns the orders of a stage. Precondition: `shape` is the graph of the stage's StageShape, and
// the producers and consumers of all tensors are known.
std::vector<MemoryOrder> FindMemoryOrders(const LogicalPlan& plan, const MemoryRings& rings,
                                          const RankGraph& shape);

// Adds the stage's orders to a graph that was lowered from the same plan and stage, and sets the
// landing buffers accordingly. Precondition: the producers and consumers of all tensors are known.
void OrderMemory(const LogicalPlan& plan, const MemoryRings& rings,
                 const std::vector<MemoryOrder>& orders, RankGraph* graph);

}  // namespace weir::compiler
