// Plays acts greedily and without time: everybody acts as often as tokens, slots and orders allow,
// until one iteration is complete or nobody can go on. Where an order asks for an act of a later
// iteration, that act is played too, and what it needs in turn. Not thread-safe; copies are
// independent.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

class Play {
 public:
  // Precondition: CheckGraph(graph), all slots given. Keeps a reference to the graph.
  explicit Play(const TimedGraph& graph);

  // As far as it goes; true if every actor did the acts of an iteration.
  bool Run();
  // More slots for a register of a play that stopped; Run() then goes on from there.
  void GrowSlots(int reg, int64_t slots);

  // Of a play that stopped: waits in a circle, each with the actor that the one before waits for as
  // its waiter. Members of joint acts are joined by their kJoint waits.
  std::vector<Wait> BlockedCircle() const;

  int64_t num_visits() const { return num_visits_; }  // a measure of the work done

 private:
  // What is played as one: an actor, or the members of a joint act.
  struct Unit {
    int first_wait = 0;  // in waits_by_unit_
    int num_waits = 0;
    int64_t done = 0;
    int64_t limit = 0;      // acts asked for
    int blocked_by = -1;    // wait; -1: not blocked
    int64_t needed = 0;     // acts of the other, to go on
    int next_waiting = -1;  // in the list of the unit that this one waits for
    int first_waiting = -1;
    bool queued = false;
  };

  // What Visit reads of a wait.
  struct Source {
    int unit = -1;       // of the other
    bool plain = false;  // one act and one token a span on both sides
    int64_t lag = 0;
  };

  void JoinUnits();
  void Visit(int unit);
  void Wake(int unit);
  void Enqueue(int unit);
  void JointPath(int from, int to, std::vector<Wait>* circle) const;
  int64_t ActsAllowed(const Wait& wait, int64_t other_done) const;
  int64_t ActsNeeded(const Wait& wait, int64_t done) const;

  const TimedGraph& graph_;
  std::vector<Wait> waits_;
  std::vector<int> waits_by_unit_;
  std::vector<Source> sources_;  // in the order of waits_by_unit_
  std::vector<int> unit_of_;     // by actor
  std::vector<int> place_;       // by wait: in waits_by_unit_; -1 for joint ones
  std::vector<Unit> units_;
  std::vector<int> stack_;
  int64_t num_visits_ = 0;
};

}  // namespace weir::compiler
