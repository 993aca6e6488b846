// Plays acts greedily and without time. Every actor acts as often as tokens, slots and orders
// allow, until one iteration is complete or no actor can go on. If an order asks for an act of a
// later iteration, the play includes that act and everything that the act needs. Not thread-safe;
// copies are independent.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

class Play {
 public:
  // Precondition: CheckGraph(graph) holds and all slots are given. Keeps a reference to the graph.
  explicit Play(const TimedGraph& graph);

  // Plays as far as possible. Returns true if every actor did the acts of an iteration.
  bool Run();
  // Gives more slots to a register of a play that stopped. Run() then continues from there.
  void GrowSlots(RegisterId reg, int64_t slots);

  // Returns waits in a circle from a play that stopped: the waiter of each wait is the actor that
  // the wait before waits for. kJoint waits connect the members of joint acts.
  std::vector<Wait> BlockedCircle() const;

  int64_t num_visits() const { return num_visits_; }  // a measure of the work done

 private:
  // A unit of play: an actor, or the members of a joint act.
  struct Unit {
    int first_wait = 0;  // in waits_by_unit_
    int num_waits = 0;
    int64_t done = 0;
    int64_t limit = 0;      // acts asked for
    int blocked_by = -1;    // index of a wait; -1: not blocked
    int64_t needed = 0;     // acts of the other unit, to go on
    int next_waiting = -1;  // in the list of the unit that this unit waits for
    int first_waiting = -1;
    bool queued = false;
  };

  // The part of a wait that Visit reads.
  struct Source {
    int unit = -1;       // of the other actor
    bool plain = false;  // one act and one token a span on both sides
    int64_t lag = 0;
  };

  void JoinUnits();
  void Visit(int unit);
  void Wake(int unit);
  void Enqueue(int unit);
  void JointPath(ActorId from, ActorId to, std::vector<Wait>* circle) const;
  int64_t ActsAllowed(const Wait& wait, int64_t other_done) const;
  int64_t ActsNeeded(const Wait& wait, int64_t done) const;

  const TimedGraph& graph_;
  std::vector<Wait> waits_;
  std::vector<int> waits_by_unit_;
  std::vector<Source> sources_;  // in the order of waits_by_unit_
  IdVector<ActorId, int> unit_of_;
  std::vector<int> place_;  // by wait: in waits_by_unit_; -1 for joint ones
  std::vector<Unit> units_;
  std::vector<int> stack_;
  int64_t num_visits_ = 0;
};

}  // namespace weir::compiler
