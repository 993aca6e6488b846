#include "compiler/rates/liveness.h"

#include <random>

#include "compiler/rates/balance_rates.h"
#include "compiler/rates/graph_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

std::string Error(const TimedGraph& graph) {
  const Liveness liveness = CheckLiveness(graph);
  return liveness.live ? "" : std::string(DeadlockError(graph, liveness.deadlock).message());
}

TimedGraph Repaired(TimedGraph graph, const Deadlock& deadlock) {
  for (const Deadlock::Repair& repair : deadlock.repairs)
    graph.registers[repair.reg].slots = repair.slots;
  return graph;
}

// Plays one iteration after another, each act as soon as possible. The tests compare this plain way
// with the product's way.
bool PlaysThrough(const TimedGraph& graph, int iterations) {
  IdVector<ActorId, int64_t> done(graph.actors.size(), 0);
  const auto may_act = [&](ActorId actor) {
    for (const TimedGraph::Register& reg : graph.registers) {
      const int64_t made = done[reg.producer.actor] / reg.producer.period * reg.producer.tokens;
      for (const TimedGraph::Port& port : reg.consumers) {
        if (port.actor == actor && done[actor] % port.period == 0 &&
            (done[actor] / port.period + 1) * port.tokens > made + reg.initial_tokens) {
          return false;
        }
        const int64_t released = done[port.actor] / port.period * port.tokens;
        if (reg.producer.actor == actor && done[actor] % reg.producer.period == 0 &&
            (done[actor] / reg.producer.period + 1) * reg.producer.tokens + reg.initial_tokens -
                    released >
                reg.slots) {
          return false;
        }
      }
    }
    for (const TimedGraph::Order& order : graph.orders) {
      if (order.after == actor && done[order.before] < done[actor] + 1 - order.delay &&
          done[actor] + 1 - order.delay > 0)
        return false;
    }
    return true;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (ActorId a : graph.actors.ids()) {
      if (done[a] >= graph.actors[a].acts * (iterations + 4) || !may_act(a)) continue;
      ++done[a];
      moved = true;
    }
  }
  for (ActorId a : graph.actors.ids()) {
    if (done[a] < graph.actors[a].acts * iterations) return false;
  }
  return true;
}

TEST(LivenessTest, AChainLivesWithOneSlotEach) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 4), b = maker.Actor("b", 4), c = maker.Actor("c", 4);
  maker.Register("x", {a}, {{b}, {c}});
  maker.Register("y", {b}, {{c}});
  EXPECT_TRUE(CheckLiveness(maker.graph).live);
}

TEST(LivenessTest, AccumulatingBesideADirectEdgeNeedsAsManySlotsAsItSums) {
  EXPECT_TRUE(CheckLiveness(AccumulateBesideDirect(4, 4, 16)).live);
  for (int64_t slots = 1; slots < 4; ++slots) {
    const TimedGraph graph = AccumulateBesideDirect(4, slots, 16);
    const Liveness liveness = CheckLiveness(graph);
    ASSERT_FALSE(liveness.live);
    ASSERT_EQ(liveness.deadlock.repairs.size(), 1u);
    EXPECT_EQ(liveness.deadlock.repairs[0].slots, 4);
    EXPECT_EQ(liveness.deadlock.repair_bytes, (4 - slots) << 20);
    EXPECT_TRUE(CheckLiveness(Repaired(graph, liveness.deadlock)).live);
  }
}

TEST(LivenessTest, TheErrorTellsTheCircleAndTheRepairInTheActorsNames) {
  EXPECT_EQ(Error(AccumulateBesideDirect(4, 3, 16)),
            "W0494 at actor `make`: expected a plan in which everyone gets to act; found a circle "
            "of waits: `make` needs a free slot of "
            "`direct` (it has 3), held until `use` has acted, which needs `sums` from `add`, which "
            "again needs `parts` from `make`. "
            "Try: give `direct` 4 slots instead of 3 (1 MiB more).");
}

TEST(LivenessTest, ARepairKeepsWithinTheAllowedSlots) {
  TimedGraph graph = AccumulateBesideDirect(4, 2, 16);
  graph.registers[RegisterId(1)].slots_max = 3;
  const Liveness liveness = CheckLiveness(graph);
  ASSERT_FALSE(liveness.live);
  EXPECT_TRUE(liveness.deadlock.repairs.empty());
  EXPECT_THAT(Error(graph), HasSubstr("no allowed number of slots helps"));
}

TEST(LivenessTest, TwoDeadCirclesAreRepairedTogether) {
  TimedGraph graph = AccumulateBesideDirect(4, 1, 8);
  const TimedGraph other = AccumulateBesideDirect(2, 1, 8);
  const auto shifted = [shift = static_cast<int>(graph.actors.size())](ActorId actor) {
    return ActorId(actor.value() + shift);
  };
  for (const TimedGraph::Actor& actor : other.actors) graph.actors.push_back(actor);
  for (TimedGraph::Register reg : other.registers) {
    reg.producer.actor = shifted(reg.producer.actor);
    for (TimedGraph::Port& port : reg.consumers) port.actor = shifted(port.actor);
    graph.registers.push_back(reg);
  }
  const Liveness liveness = CheckLiveness(graph);
  ASSERT_FALSE(liveness.live);
  EXPECT_EQ(liveness.deadlock.repairs.size(), 2u);
  EXPECT_EQ(liveness.deadlock.repair_bytes, 4 << 20) << "3 more of one, 1 more of the other";
  EXPECT_TRUE(CheckLiveness(Repaired(graph, liveness.deadlock)).live);
}

TEST(LivenessTest, TheCheaperOfTwoRegistersOnTheCircleIsTaken) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 4), b = maker.Actor("b", 4), c = maker.Actor("c", 4);
  maker.Register("large", {a}, {{b}}, {.slots = 1, .bytes = 1000});
  maker.Register("small", {b}, {{c}}, {.slots = 1, .bytes = 10});
  maker.Order(c, a, -2, "stream 0");  // act k of a comes after act k + 2 of c
  const Liveness liveness = CheckLiveness(maker.graph);
  ASSERT_FALSE(liveness.live);
  EXPECT_TRUE(liveness.deadlock.repairs.empty()) << "tokens, not slots, are what is missing";
  EXPECT_THAT(Error(maker.graph),
              HasSubstr("change an order, as no number of slots helps: stream 0"));
}

TEST(LivenessTest, TheDeadlockThatOneFlowShippedIsFoundWithItsRepair) {
  const TimedGraph graph = SharedStreamCollective(1, 8);
  const Liveness liveness = CheckLiveness(graph);
  ASSERT_FALSE(liveness.live);
  ASSERT_EQ(liveness.deadlock.repairs.size(), 1u);
  EXPECT_EQ(liveness.deadlock.repairs[0].slots, 2);
  EXPECT_EQ(Error(graph),
            "W0494 at actor `repeat`: expected a plan in which everyone gets to act; found a "
            "circle of waits: `repeat` needs a free slot of "
            "`repeated` (it has 1), held until `all-reduce 2108 rank 0` has acted, which needs "
            "`buffered` from `buffer rank 0`, which comes "
            "only after the next act of `all-gather 1998 rank 0` (stream 0 of rank 0), which again "
            "needs `repeated` from `repeat`. Try: give "
            "`repeated` 2 slots instead of 1 (4096 bytes more).");
  EXPECT_TRUE(CheckLiveness(SharedStreamCollective(2, 8)).live);
}

TEST(LivenessTest, CollectivesInDifferentOrderOnTwoRanksAreADeadlock) {
  GraphMaker maker;
  const ActorId a0 = maker.Actor("reduce a rank 0", 2), b0 = maker.Actor("reduce b rank 0", 2);
  const ActorId a1 = maker.Actor("reduce a rank 1", 2), b1 = maker.Actor("reduce b rank 1", 2);
  maker.Order(a0, a1, 0, "collective a", TimedGraph::Order::Kind::kJoint);
  maker.Order(b0, b1, 0, "collective b", TimedGraph::Order::Kind::kJoint);
  maker.Order(a0, b0, 0, "stream of rank 0");
  maker.Order(b1, a1, 0, "stream of rank 1");
  EXPECT_EQ(Error(maker.graph),
            "W0494 at actor `reduce a rank 1`: expected a plan in which everyone gets to act; "
            "found a circle of waits: `reduce a rank 1` comes "
            "after `reduce b rank 1` (stream of rank 1), which starts only together with `reduce b "
            "rank 0` (collective b), which comes after "
            "`reduce a rank 0` (stream of rank 0), which again starts only together with `reduce a "
            "rank 1` (collective a). Try: change an "
            "order, as no number of slots helps: collective a, collective b, stream of rank 0, "
            "stream of rank 1.");
  maker.graph.orders.back() = {a1, b1, 0, "stream of rank 1"};
  EXPECT_TRUE(CheckLiveness(maker.graph).live);
}

TEST(LivenessTest, AStreamThatRunsAheadOfAMicroBatchIsPlayedIntoTheNextIteration) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 4), b = maker.Actor("b", 4);
  maker.Register("x", {a}, {{b}}, {.slots = 2});
  maker.Order(a, b, -1, "stream 0");
  EXPECT_TRUE(CheckLiveness(maker.graph).live);
  maker.graph.registers[RegisterId(0)].slots = 1;
  const Liveness liveness = CheckLiveness(maker.graph);
  ASSERT_FALSE(liveness.live);
  ASSERT_EQ(liveness.deadlock.repairs.size(), 1u);
  EXPECT_EQ(liveness.deadlock.repairs[0].slots, 2);
}

TEST(LivenessTest, RandomGraphsAgreeWithPlayingActByAct) {
  int dead = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int least, int most) {
      return static_cast<int64_t>(random() % (most - least + 1)) + least;
    };
    GraphMaker maker;
    const int num_actors = static_cast<int>(draw(2, 6));
    IdVector<ActorId, int64_t> acts;
    for (int i = 0; i < num_actors; ++i) {
      acts.push_back(draw(1, 4) * draw(1, 2));
      maker.Actor("a", acts.back() * 2);
    }
    const int num_registers = static_cast<int>(draw(1, 8));
    for (int r = 0; r < num_registers; ++r) {
      const ActorId from(static_cast<int>(random() % num_actors)),
          to(static_cast<int>(random() % num_actors));
      TimedGraph::Port producer = {from, 1, acts[to]}, consumer = {to, 1, acts[from]};
      if (random() % 2 == 0) producer = {from, acts[from], 1}, consumer = {to, acts[to], 1};
      if (random() % 4 == 0) producer = {from, 2 * acts[from], 1}, consumer = {to, 2 * acts[to], 1};
      const int64_t initial = from >= to ? draw(0, 3) * producer.tokens * draw(1, 2) : draw(0, 1);
      const int64_t slots =
          std::max(initial, draw(1, 2) * std::max(producer.tokens, consumer.tokens) + draw(0, 1));
      maker.Register(
          "r", producer, {consumer},
          {.slots = std::max<int64_t>(slots, 1), .initial_tokens = initial, .bytes = draw(1, 9)});
    }
    const ActorId from(static_cast<int>(random() % num_actors)),
        to(static_cast<int>(random() % num_actors));
    if (acts[from] == acts[to]) maker.Order(from, to, draw(-2, 2), "order");
    const TimedGraph& graph = maker.graph;
    const Liveness liveness = CheckLiveness(graph);
    ASSERT_EQ(liveness.live, PlaysThrough(graph, 3)) << "seed " << seed;
    if (liveness.live) continue;
    ++dead;
    ASSERT_FALSE(liveness.deadlock.actors.empty());
    for (size_t i = 0; i < liveness.deadlock.links.size(); ++i) {
      const ActorId waiter = liveness.deadlock.actors[i],
                    next = liveness.deadlock.actors[(i + 1) % liveness.deadlock.actors.size()];
      const Deadlock::Link& link = liveness.deadlock.links[i];
      if (link.kind == Deadlock::Link::Kind::kOrder) continue;
      const TimedGraph::Register& reg = graph.registers[link.reg];
      const bool token = link.kind == Deadlock::Link::Kind::kToken;
      EXPECT_EQ(token ? reg.producer.actor : reg.consumers[0].actor, next) << "seed " << seed;
      EXPECT_EQ(token ? reg.consumers[0].actor : reg.producer.actor, waiter) << "seed " << seed;
    }
    if (liveness.deadlock.repairs.empty()) continue;
    const TimedGraph repaired = Repaired(graph, liveness.deadlock);
    EXPECT_TRUE(PlaysThrough(repaired, 3)) << "seed " << seed;
    for (const Deadlock::Repair& repair : liveness.deadlock.repairs) {
      TimedGraph less = repaired;
      --less.registers[repair.reg].slots;
      EXPECT_FALSE(less.registers[repair.reg].slots >= graph.registers[repair.reg].slots &&
                   PlaysThrough(less, 3))
          << "seed " << seed;
    }
  }
  EXPECT_GT(dead, 200);
  EXPECT_LT(dead, 1800);
}

}  // namespace
}  // namespace weir::compiler
