// Time as a graph: who hands what to whom, how often, and how long each act takes. The register
// solve and the proof that a plan cannot deadlock work on this and know nothing of tensors, layouts
// or ranks.
//
// An actor does `acts` acts in one iteration (a step, or H steps where something happens every
// H-th). A port spans `period` acts and moves `tokens` tokens: a consumer takes them before the
// first act of the span and gives their slots back after the last; a producer takes as many free
// slots before the first and publishes them after the last. Repeating is a consumer's period > 1,
// accumulating a producer's, packing a consumer's tokens > 1, unpacking a producer's. A register
// that has `initial_tokens` d is an edge with delay d. With that every actor takes each token
// itself and shares no choice with another, so what can happen stays possible (Karp and Miller
// 1966; Lee and Messerschmitt 1987): one schedule that completes proves that all do.
//
// Thread rule: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir::compiler {

// The longest act, and the longest way of a token: 18 minutes. Sums over the actors of a job stay
// far from overflowing.
inline constexpr int64_t kActNsMax = int64_t{1} << 40;

struct TimedGraph {
  struct Actor {
    std::string name;     // as the user would say it: "forward layers.3"
    int64_t acts = 0;     // in one iteration; 0: BalanceRates is to find it
    int64_t chunks = 1;   // acts that belong to one micro-batch; divides acts
    int64_t time_ns = 1;  // of one act, from 1 to kActNsMax
    int device = -1;      // acts of one device do not overlap; -1: those of this actor alone do not
    int priority = 0;     // the larger first, among what is ready on a device
  };
  struct Port {
    int actor = -1;
    int64_t period = 1;  // acts of a span
    int64_t tokens = 1;  // of a span
  };
  struct Register {
    std::string name;
    Port producer;
    std::vector<Port> consumers;
    int64_t initial_tokens = 0;
    int64_t slots = 0;       // 0: to be solved
    int64_t slots_max = 0;   // 0: no limit
    int64_t bytes = 0;       // of one slot
    int64_t latency_ns = 0;  // from the end of the producer's act until a consumer sees the token,
                             // and for a credit back
  };
  // Act k of `after` starts only when act k - `delay` of `before` has ended. What is not a
  // register: the fixed order of a stream (with a delay on the way round), memory that is used
  // again. Both have equally many acts. kJoint: act k of both is one act that all take part in (a
  // library's collective): they start together; delay 0.
  struct Order {
    enum class Kind : uint8_t { kAfter, kJoint };
    int before = -1;
    int after = -1;
    int64_t delay = 0;  // may be negative: an act placed before one of a later micro-batch
    std::string why;    // "stream 0 of rank 1", for messages
    Kind kind = Kind::kAfter;
  };
  std::vector<Actor> actors;
  std::vector<Register> registers;
  std::vector<Order> orders;
};

}  // namespace weir::compiler
