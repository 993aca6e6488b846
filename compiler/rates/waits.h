// The dependencies of a timed graph in one form: each act of an actor waits for the end of some act
// of another actor. All code here that plays, checks or solves a graph reads registers and orders
// through waits.
//
// A wait joins two ports. With spans of `period` acts and `tokens` tokens on both sides, span x of
// the waiter needs token (x + 1) * tokens - 1 - lag of the other side, and waits for the end of the
// span of that token:
//   token of a register: the consumer waits for the producer, lag = initial tokens
//   slot of a register:  the producer waits for a consumer, lag = slots - initial tokens
//   order:               spans of one act and one token, lag = delay
// A negative token number means an earlier iteration, or the time before the first act, which needs
// no wait. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/rates/timed_graph.h"
#include "runtime/base/floor_div.h"

namespace weir::compiler {

// Numbers of acts, tokens and slots stay below this limit, so that a product of two such numbers
// with small factors fits into 64 bits.
inline constexpr int64_t kCountMax = int64_t{1} << 31;
inline constexpr int64_t kTimeMaxNs = int64_t{1} << 60;

struct Wait {
  enum class Kind : uint8_t { kToken, kSlot, kOrder, kJoint };
  Kind kind = Kind::kToken;
  RegisterId reg;     // kToken, kSlot
  int order = -1;     // kOrder, kJoint: in TimedGraph::orders
  int consumer = -1;  // of the register
  ActorId waiter;
  ActorId other;  // the actor waited for
  TimedGraph::Port waiter_port;
  TimedGraph::Port other_port;
  int64_t lag = 0;
  int64_t latency_ns = 0;
};

// Act `act` of the waiter, in any iteration, waits for act `other_act` of the other actor in the
// iteration `iterations` later (mostly 0 or -1).
struct Need {
  int64_t act = 0;
  int64_t other_act = 0;
  int64_t iterations = 0;
};

Wait TokenWait(const TimedGraph& graph, RegisterId reg, int consumer);
Wait SlotWait(const TimedGraph& graph, RegisterId reg, int consumer, int64_t slots);
Wait OrderWait(const TimedGraph& graph, int order);
// Returns all waits of a graph. Registers without a slot count give no slot waits. A joint order
// gives two waits.
std::vector<Wait> AllWaits(const TimedGraph& graph);

// Returns a text for messages: "act 3 of `forward main` takes a token of `x` that act 2 of `data`
// publishes".
std::string Describe(const TimedGraph& graph, const Wait& wait, const Need& need);

// Checks that every index is in its range, periods and chunks divide acts, rates are in balance,
// and counts are below kCountMax. kInternal: the graph is wrong, because the compiler makes graphs.
absl::Status CheckGraph(const TimedGraph& graph);

// The act counts of an actor as a Wait sees them.
struct ActShape {
  int64_t acts = 0;
  int64_t chunks = 1;
};
inline ActShape ShapeOf(const TimedGraph& graph, ActorId actor) {
  return {graph.actors[actor].acts, graph.actors[actor].chunks};
}

inline Need NeedOfSpan(const Wait& wait, int64_t other_spans, int64_t span) {
  const int64_t token = (span + 1) * wait.waiter_port.tokens - 1 - wait.lag;
  const int64_t other_span = FloorDiv(token, wait.other_port.tokens);
  const int64_t iterations = FloorDiv(other_span, other_spans);
  return {span * wait.waiter_port.period,
          (other_span - iterations * other_spans + 1) * wait.other_port.period - 1, iterations};
}

// Returns whether the first acts of spans, and the last acts of spans, are equally far apart all
// through an iteration.
inline bool IsEven(const ActShape& shape, int64_t period) {
  return shape.chunks == 1 || shape.chunks == shape.acts || period % shape.chunks == 0;
}

// Calls `visit` with needs of one iteration. If both ends are even (or chunk for chunk), the
// visited needs are few, but start times that keep these needs keep all needs. Otherwise `visit`
// sees all needs.
template <typename Visit>
void ForEachNeed(const TimedGraph& graph, const Wait& wait, Visit visit) {
  const ActShape waiter = ShapeOf(graph, wait.waiter), other = ShapeOf(graph, wait.other);
  const int64_t spans = waiter.acts / wait.waiter_port.period;
  const int64_t other_spans = other.acts / wait.other_port.period;
  const auto span = [&](int64_t x) { visit(NeedOfSpan(wait, other_spans, x)); };
  const bool same_tokens = wait.waiter_port.tokens == wait.other_port.tokens;
  if (same_tokens && spans > 4) {
    // Span x needs span x - back of the other actor. Start times are linear over pieces of x on
    // which nothing wraps.
    const int64_t tokens = wait.waiter_port.tokens;
    const int64_t back = -FloorDiv(tokens - 1 - wait.lag, tokens);
    if (IsEven(waiter, wait.waiter_port.period) && IsEven(other, wait.other_port.period)) {
      const int64_t wrap = back - FloorDiv(back, spans) * spans;
      span(0);
      if (wrap > 0) {
        span(wrap - 1);
        if (wrap < spans) span(wrap);
      }
      span(spans - 1);
      return;
    }
    if (wait.waiter_port.period == 1 && wait.other_port.period == 1 &&
        waiter.chunks == other.chunks) {
      const int64_t chunks = waiter.chunks, micro_batches = spans / chunks;
      const int64_t back_whole = FloorDiv(back, chunks), back_chunk = back - back_whole * chunks;
      const int64_t wrap = back_whole - FloorDiv(back_whole, micro_batches) * micro_batches;
      std::array<int64_t, 6> micro_batch_at = {0,        wrap - 1, wrap,
                                               wrap + 1, wrap + 2, micro_batches - 1};
      std::array<int64_t, 4> chunk_at = {0, back_chunk - 1, back_chunk, chunks - 1};
      int64_t last = -1;
      for (int64_t k : micro_batch_at) {
        if (k <= last || k >= micro_batches) continue;
        last = k;
        int64_t last_chunk = -1;
        for (int64_t chunk : chunk_at) {
          if (chunk <= last_chunk || chunk >= chunks) continue;
          last_chunk = chunk;
          span(k * chunks + chunk);
        }
      }
      return;
    }
  }
  for (int64_t x = 0; x < spans; ++x) span(x);
}

}  // namespace weir::compiler
