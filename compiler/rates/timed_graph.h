// A timed graph says which actors hand tokens to which, how often, and how long each act takes. The
// register solve and the proof that a plan cannot deadlock work on timed graphs and know nothing of
// tensors, layouts or ranks.
//
// An actor does `acts` acts in one iteration (a step, or H steps if something happens every H-th
// step). A port spans `period` acts and moves `tokens` tokens. A consumer takes the tokens before
// the first act of the span and gives their slots back after the last act. A producer takes as many
// free slots before the first act and publishes them after the last act. A consumer that repeats
// has period > 1, and a producer that accumulates has period > 1. A consumer that packs has tokens
// > 1, and a producer that unpacks has tokens > 1. A register with `initial_tokens` d is an edge
// with delay d.
//
// No two actors compete for a token, so an act that can happen stays possible until it happens
// (Karp and Miller 1966; Lee and Messerschmitt 1987). One schedule that completes therefore proves
// that all schedules complete.
//
// Actors and registers are numbered within the graph.
//
// Thread rule: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"

namespace weir::compiler {

// The limit for an act, and for a token on its way: 18 minutes. With this limit, sums over the
// actors of a job stay far from overflow.
inline constexpr int64_t kActNsMax = int64_t{1} << 40;

struct TimedGraph {
  struct Actor {
    std::string name;     // in the user's words: "forward layers.3"
    int64_t acts = 0;     // in one iteration; 0: BalanceRates finds the number
    int64_t chunks = 1;   // acts for one micro-batch; divides acts
    int64_t time_ns = 1;  // of one act, from 1 to kActNsMax
    // Acts of one device do not overlap. -1: only the acts of this actor do not overlap each other.
    int device = -1;
    int priority = 0;  // among the ready acts of a device, the larger goes first
  };
  struct Port {
    ActorId actor;
    int64_t period = 1;  // acts of a span
    int64_t tokens = 1;  // of a span
  };
  struct Register {
    std::string name;
    Port producer;
    std::vector<Port> consumers;
    int64_t initial_tokens = 0;
    int64_t slots = 0;      // 0: to be solved
    int64_t slots_max = 0;  // 0: no limit
    int64_t bytes = 0;      // of one slot
    // The time from the end of the producer's act until a consumer sees the token. A credit takes
    // as long on its way back.
    int64_t latency_ns = 0;
  };
  // A dependency that is not a register: the fixed order of a stream (with a delay on the way
  // round), or memory that is used again. kAfter: act k of `after` starts only when act k - `delay`
  // of `before` has ended. Both actors have equally many acts. kJoint: act k of both actors is one
  // joint act (a library's collective), so both start together; the delay is 0.
  struct Order {
    enum class Kind : uint8_t { kAfter, kJoint };
    ActorId before;
    ActorId after;
    // A negative delay places an act before the act of a later micro-batch.
    int64_t delay = 0;
    std::string why;  // "stream 0 of rank 1", for messages
    Kind kind = Kind::kAfter;
  };
  IdVector<ActorId, Actor> actors;
  IdVector<RegisterId, Register> registers;
  std::vector<Order> orders;
};

}  // namespace weir::compiler
