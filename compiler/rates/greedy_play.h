// Plays a timed graph in virtual time as the runtime would. An act starts as soon as its tokens,
// slots, orders and device allow. A device takes the ready act of the highest priority, and among
// equal priorities the act of the least precedence. Not here: joint orders; planned start times
// (start_times.h). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

class GreedyPlay {
 public:
  // Returns the precedence of an actor for a micro-batch, counted over all iterations.
  using PrecedenceOf = std::function<int64_t(ActorId actor, int64_t micro_batch)>;
  // Without precedences the earlier micro-batch goes first. Precondition: CheckGraph(graph) holds
  // and all slots are given. Keeps a copy of the graph.
  explicit GreedyPlay(const TimedGraph& graph, PrecedenceOf precedence_of = nullptr);

  // Returns false if the play comes to rest before every actor has done the acts of `iterations`
  // iterations.
  bool Run(int64_t iterations);

  // Returns the end of each act of an actor.
  const std::vector<int64_t>& ends(ActorId actor) const { return ends_[actor]; }

  // Returns the mean time between the micro-batches of an actor, over the last `share` of its acts.
  double Period(ActorId actor, double share) const;

 private:
  bool IsKept(int wait) const;
  bool MayAct(ActorId actor);
  void Offer(ActorId actor, int64_t iterations);
  void Start(int device, int64_t now);
  void End(ActorId actor, int64_t now, int64_t iterations);

  const TimedGraph graph_;
  const PrecedenceOf precedence_of_;
  std::vector<Wait> waits_;
  // By wait: whether both sides move one token an act, as most do.
  std::vector<char> plain_;
  IdVector<ActorId, std::vector<int>> waits_of_, watched_by_;
  // The wait that held the actor when it last might have acted.
  IdVector<ActorId, int> held_by_;
  std::vector<int64_t> seen_;  // by wait: ended acts of the other actor that the waiter has seen
  IdVector<ActorId, int64_t> started_;
  IdVector<ActorId, std::vector<int64_t>> ends_;
  IdVector<ActorId, int> device_of_;
  std::vector<std::set<std::tuple<int, int64_t, ActorId>>>
      ready_;  // by device: -priority, precedence, actor
  std::vector<char> busy_;
  // The queue orders two kinds of events by time: the end of an actor's act, and the moment when a
  // wait sees that end. An event has the time, the actor and the wait (-1: the end of the act).
  using Event = std::tuple<int64_t, ActorId, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace weir::compiler
