// Builds small timed graphs by hand, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

// Each function adds an entry to the graph and returns its id, or the index of an order.
class GraphMaker {
 public:
  ActorId Actor(std::string name, int64_t acts = 0, int64_t time_ns = 1, int64_t chunks = 1,
                int device = -1) {
    const ActorId id = graph.actors.next_id();
    graph.actors.push_back({std::move(name), acts, chunks, time_ns, device, 0});
    return id;
  }

  struct Settings {
    int64_t slots = 1;
    int64_t initial_tokens = 0;
    int64_t bytes = 1;
    int64_t latency_ns = 0;
    int64_t slots_max = 0;
  };
  RegisterId Register(std::string name, TimedGraph::Port producer,
                      std::vector<TimedGraph::Port> consumers, Settings settings) {
    const RegisterId id = graph.registers.next_id();
    graph.registers.push_back({std::move(name), producer, std::move(consumers),
                               settings.initial_tokens, settings.slots, settings.slots_max,
                               settings.bytes, settings.latency_ns});
    return id;
  }
  RegisterId Register(std::string name, TimedGraph::Port producer,
                      std::vector<TimedGraph::Port> consumers) {
    return Register(std::move(name), producer, std::move(consumers), Settings());
  }

  int Order(ActorId before, ActorId after, int64_t delay, std::string why,
            TimedGraph::Order::Kind kind = TimedGraph::Order::Kind::kAfter) {
    graph.orders.push_back({before, after, delay, std::move(why), kind});
    return static_cast<int>(graph.orders.size()) - 1;
  }

  TimedGraph graph;
};

// Accumulation beside a direct edge. `make` hands each token to `add`, which sums k tokens, and to
// `use`, which keeps one sum for k acts and takes one token of the direct edge in each act. The
// direct edge needs k slots.
inline TimedGraph AccumulateBesideDirect(int64_t k, int64_t direct_slots, int64_t micro_batches) {
  GraphMaker maker;
  const ActorId make = maker.Actor("make", micro_batches, 5),
                add = maker.Actor("add", micro_batches, 3),
                use = maker.Actor("use", micro_batches, 7);
  maker.Register("sums", {add, k, 1}, {{use, k, 1}});
  maker.Register("direct", {make}, {{use}}, {.slots = direct_slots, .bytes = 1 << 20});
  maker.Register("parts", {make}, {{add}});
  return maker.graph;
}

// Returns a graph with a deadlock that OneFlow shipped (libai issue 232). The collective `late`
// over ranks 0 and 1 waits for the buffer of rank 0. The stream of rank 0 runs the buffer only
// after the collective `early` of the next micro-batch. That `early` waits for a free slot of the
// repeated register, and only the `late` before it can release the slot. With 2 slots the graph is
// live.
inline TimedGraph SharedStreamCollective(int64_t repeat_slots, int64_t micro_batches) {
  GraphMaker maker;
  const ActorId repeat = maker.Actor("repeat", micro_batches, 2);
  const ActorId early0 = maker.Actor("all-gather 1998 rank 0", micro_batches, 4),
                early1 = maker.Actor("all-gather 1998 rank 1", micro_batches, 4);
  const ActorId buffer = maker.Actor("buffer rank 0", micro_batches, 1);
  const ActorId late0 = maker.Actor("all-reduce 2108 rank 0", micro_batches, 6),
                late1 = maker.Actor("all-reduce 2108 rank 1", micro_batches, 6);
  maker.Register("repeated", {repeat}, {{early0}, {late0}}, {.slots = repeat_slots, .bytes = 4096});
  maker.Register("buffered", {buffer}, {{late0}});
  maker.Order(early0, buffer, -1, "stream 0 of rank 0");
  maker.Order(early0, early1, 0, "collective 1998", TimedGraph::Order::Kind::kJoint);
  maker.Order(late0, late1, 0, "collective 2108", TimedGraph::Order::Kind::kJoint);
  return maker.graph;
}

}  // namespace weir::compiler
