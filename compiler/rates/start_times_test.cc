#include "compiler/rates/start_times.h"

#include <random>

#include "compiler/rates/graph_testing.h"
#include "compiler/rates/waits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

// Makes a -> b with 2 slots, 8 micro-batches, and an update that the next iteration's b waits for.
TimedGraph Small() {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 8, 10), b = maker.Actor("b", 8, 10),
                update = maker.Actor("update", 1, 5);
  maker.Register("x", {a}, {{b}}, {.slots = 2, .latency_ns = 3});
  maker.Register("sum", {b, 8, 1}, {{update}}, {.slots = 2});
  maker.Register("weights", {update}, {{b, 8, 1}}, {.slots = 1, .initial_tokens = 1});
  return maker.graph;
}

StartTimes SmallTimes() {
  StartTimes times;
  times.micro_batch_ns = 13;
  times.actors = {{0, 13, 0}, {13, 13, 0}, {13 + 7 * 13 + 10, 0, 0}};
  times.iteration_ns = 13 + 7 * 13 + 10 + 5 - 13;
  return times;
}

TEST(StartTimesTest, TimesThatJustFitAreAccepted) {
  EXPECT_EQ(CheckStartTimes(Small(), SmallTimes()), absl::OkStatus());
}

TEST(StartTimesTest, EveryKindOfEdgeIsFoundWhenItIsANanosecondShort) {
  StartTimes times = SmallTimes();
  --times.actors[ActorId(1)].start_ns;
  EXPECT_THAT(std::string(CheckStartTimes(Small(), times).message()),
              HasSubstr("`b` takes a token of `x` that act 0 of `a` publishes"));
  times = SmallTimes();
  --times.actors[ActorId(2)].start_ns;
  EXPECT_THAT(
      std::string(CheckStartTimes(Small(), times).message()),
      HasSubstr("takes a token of `sum` that act 7 of `b` publishes, but starts 1 ns too early"));
  times = SmallTimes();
  --times.iteration_ns;
  EXPECT_THAT(std::string(CheckStartTimes(Small(), times).message()),
              HasSubstr("act 0 of `b` takes a token of `weights` that act 0 of the iteration "
                        "before of `update` publishes"));
  times = SmallTimes();
  times.actors[ActorId(1)].start_ns += 100;
  times.actors[ActorId(2)].start_ns += 100;
  times.iteration_ns += 100;
  EXPECT_THAT(std::string(CheckStartTimes(Small(), times).message()),
              HasSubstr("takes a slot of `x`"));
}

TEST(StartTimesTest, ActsOfOneActorMayNotOverlap) {
  GraphMaker maker;
  maker.Actor("a", 6, 10, 3);
  StartTimes times;
  times.iteration_ns = 60;
  times.actors = {{0, 30, 10}};
  EXPECT_EQ(CheckStartTimes(maker.graph, times), absl::OkStatus());
  for (int64_t* field : {&times.iteration_ns, &times.actors[ActorId(0)].micro_batch_stride_ns,
                         &times.actors[ActorId(0)].chunk_stride_ns}) {
    --*field;
    EXPECT_THAT(std::string(CheckStartTimes(maker.graph, times).message()), HasSubstr("overlap"));
    ++*field;
  }
}

TEST(StartTimesTest, JointActsStartTogether) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 4, 10), b = maker.Actor("b", 4, 20);
  maker.Order(a, b, 0, "collective", TimedGraph::Order::Kind::kJoint);
  StartTimes times;
  times.iteration_ns = 80;
  times.actors = {{5, 20, 0}, {5, 20, 0}};
  EXPECT_EQ(CheckStartTimes(maker.graph, times), absl::OkStatus());
  for (const int64_t by : {-1, 1}) {
    times.actors[ActorId(1)].start_ns = 5 + by;
    EXPECT_THAT(std::string(CheckStartTimes(maker.graph, times).message()),
                HasSubstr("starts together with"));
  }
}

TEST(StartTimesTest, AbsurdNumbersAreRefusedAndDoNotWrap) {
  for (const int64_t value : {INT64_MIN, int64_t{-1}, INT64_MAX, (int64_t{1} << 60) + 1}) {
    StartTimes times = SmallTimes();
    times.iteration_ns = value;
    EXPECT_FALSE(CheckStartTimes(Small(), times).ok());
    times = SmallTimes();
    times.actors[ActorId(0)].micro_batch_stride_ns = value;
    EXPECT_FALSE(CheckStartTimes(Small(), times).ok());
    times = SmallTimes();
    times.actors[ActorId(1)].start_ns = value;
    EXPECT_FALSE(CheckStartTimes(Small(), times).ok());
  }
  StartTimes times = SmallTimes();
  times.actors.resize(times.actors.size() - 1);
  EXPECT_FALSE(CheckStartTimes(Small(), times).ok());
}

// Makes a register or order between two random actors with random times, and checks by all acts of
// five iterations whether the times hold.
TEST(StartTimesTest, TheShortcutForEvenEdgesFindsWhatLookingAtAllActsFinds) {
  int held = 0, early = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int least, int most) {
      return static_cast<int64_t>(random() % (most - least + 1)) + least;
    };
    GraphMaker maker;
    StartTimes times;
    const int64_t micro_batches = draw(1, 7);
    const int64_t same_chunks = draw(1, 4);
    for (int i = 0; i < 2; ++i) {
      const int64_t chunks = random() % 2 == 0 ? same_chunks : draw(1, 4);
      maker.Actor(i == 0 ? "a" : "b", (random() % 4 == 0 ? 1 : micro_batches) * chunks, draw(1, 4),
                  chunks);
    }
    const ActorId a(0), b(1);
    const TimedGraph::Actor &first = maker.graph.actors[a], &second = maker.graph.actors[b];
    TimedGraph::Port producer = {a, 1, second.acts}, consumer = {b, 1, first.acts};
    if (first.acts == second.acts && random() % 4 != 0)
      producer.tokens = consumer.tokens = draw(1, 2);
    if (random() % 3 == 0)
      producer = {a, first.chunks, second.acts / second.chunks},
      consumer = {b, second.chunks, first.acts / first.chunks};
    const int64_t initial = random() % 2 == 0 ? 0 : draw(1, 12);
    maker.Register("r", producer, {consumer},
                   {.slots = std::max(initial, draw(1, 20)),
                    .initial_tokens = initial,
                    .latency_ns = draw(0, 2)});
    if (first.acts == second.acts) maker.Order(a, b, draw(-3, 3), "order");
    times.iteration_ns = 0;
    for (const TimedGraph::Actor& actor : maker.graph.actors) {
      Timing t;
      t.chunk_stride_ns = actor.time_ns + draw(0, 3);
      t.micro_batch_stride_ns =
          (actor.chunks - 1) * t.chunk_stride_ns + actor.time_ns + draw(0, 10);
      times.actors.push_back(t);
      times.iteration_ns =
          std::max(times.iteration_ns, actor.acts / actor.chunks * t.micro_batch_stride_ns);
    }
    times.iteration_ns += draw(0, 60);
    times.actors[b].start_ns = draw(0, 80) - 20;
    bool holds = true;
    const auto start = [&](ActorId actor, int64_t act) {
      const TimedGraph::Actor& one = maker.graph.actors[actor];
      const int64_t n = FloorDiv(act, one.acts), k = act - n * one.acts;
      return n * times.iteration_ns + times.actors[actor].start_ns +
             k / one.chunks * times.actors[actor].micro_batch_stride_ns +
             k % one.chunks * times.actors[actor].chunk_stride_ns;
    };
    for (const Wait& wait : AllWaits(maker.graph)) {
      const int64_t acts = maker.graph.actors[wait.waiter].acts;
      for (int64_t act = 40 * acts; act < 45 * acts; act += wait.waiter_port.period) {
        const int64_t token =
            (act / wait.waiter_port.period + 1) * wait.waiter_port.tokens - 1 - wait.lag;
        if (token < 0) continue;
        const int64_t other_act = (token / wait.other_port.tokens + 1) * wait.other_port.period - 1;
        holds &= start(wait.waiter, act) >= start(wait.other, other_act) +
                                                maker.graph.actors[wait.other].time_ns +
                                                wait.latency_ns;
      }
    }
    ASSERT_EQ(CheckStartTimes(maker.graph, times).ok(), holds)
        << "seed " << seed << ": " << CheckStartTimes(maker.graph, times);
    ++(holds ? held : early);
  }
  EXPECT_GT(held, 500);
  EXPECT_GT(early, 500);
}

}  // namespace
}  // namespace weir::compiler
