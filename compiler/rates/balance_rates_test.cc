#include "compiler/rates/balance_rates.h"

#include <numeric>
#include <random>

#include "compiler/rates/graph_testing.h"
#include "compiler/rates/waits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

TEST(BalanceRatesTest, PeriodsAndTokensMultiplyAlongAChain) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a"), b = maker.Actor("b"), c = maker.Actor("c");
  maker.Register("packed", {a, 1, 2}, {{b, 1, 3}});  // 3 acts of a for 2 of b
  maker.Register("summed", {b, 4, 1}, {{c, 1, 1}});  // 4 acts of b for 1 of c
  ASSERT_TRUE(BalanceRates(&maker.graph).ok());
  EXPECT_EQ(maker.graph.actors[a].acts, 6);
  EXPECT_EQ(maker.graph.actors[b].acts, 4);
  EXPECT_EQ(maker.graph.actors[c].acts, 1);
}

TEST(BalanceRatesTest, GivenActsScaleTheirPartAndOtherPartsStaySmallest) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a"), b = maker.Actor("b", 8),
                alone = maker.Actor("alone", 0, 1, 3);
  maker.Register("x", {a}, {{b, 4, 1}});
  ASSERT_TRUE(BalanceRates(&maker.graph).ok());
  EXPECT_EQ(maker.graph.actors[a].acts, 2);
  EXPECT_EQ(maker.graph.actors[b].acts, 8);
  EXPECT_EQ(maker.graph.actors[alone].acts, 3) << "whole chunks";
}

TEST(BalanceRatesTest, AnOrderAsksForEqualActs) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 6), b = maker.Actor("b");
  maker.Order(a, b, 0, "stream 0");
  ASSERT_TRUE(BalanceRates(&maker.graph).ok());
  EXPECT_EQ(maker.graph.actors[b].acts, 6);
}

TEST(BalanceRatesTest, TwoPathsThatDisagreeAreNamedWithWhatEachAsks) {
  GraphMaker maker;
  const ActorId data = maker.Actor("data"), forward = maker.Actor("forward"),
                sum = maker.Actor("sum"), join = maker.Actor("join");
  maker.Register("x", {data}, {{forward}});
  maker.Register("loss", {forward, 4, 1}, {{sum}});
  maker.Register("total", {sum}, {{join}});
  maker.Register("skip", {forward, 2, 1}, {{join}});
  const absl::Status status = BalanceRates(&maker.graph);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "W0493 at actor `join`: expected the same rate on every path, per act of `forward`; "
            "found 1/2 by way of `forward` (skip) `join`, "
            "but 1/4 by way of `forward` (loss) `sum` (total) `join`. Try: make the periods and "
            "tokens along the two paths multiply to the "
            "same rate.");
}

TEST(BalanceRatesTest, AnActorThatFeedsItselfFasterThanItTakesIsAnError) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a");
  maker.Register("loop", {a, 1, 2}, {{a, 1, 1}}, {.slots = 4, .initial_tokens = 1});
  const absl::Status status = BalanceRates(&maker.graph);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("found 1 (itself), but 2 by way of `a` (loop) `a`"));
}

TEST(BalanceRatesTest, GivenActsThatContradictEachOtherNameThePath) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 4), b = maker.Actor("b"), c = maker.Actor("c", 3);
  maker.Register("x", {a}, {{b}});
  maker.Register("y", {b}, {{c}});
  const absl::Status status = BalanceRates(&maker.graph);
  EXPECT_EQ(std::string(status.message()),
            "W0493 at actor `c`: expected 4 acts, as `a` acts 4 times, by way of `a` (x) `b` (y) "
            "`c`; found 3. Try: change one of the two, or "
            "a period between them.");
}

TEST(BalanceRatesTest, GivenActsThatAreNoMultipleOfAPeriodSayWhatWouldDo) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 5), b = maker.Actor("b");
  maker.Register("x", {a}, {{b, 1, 4}});
  const absl::Status status = BalanceRates(&maker.graph);
  EXPECT_THAT(std::string(status.message()), HasSubstr("found 5/4, as `a` acts 5 times"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("let `a` act a multiple of 4 times"));
}

TEST(BalanceRatesTest, RatesTooLargeFor64BitsAreAnErrorAndNotAWrap) {
  GraphMaker maker;
  ActorId last = maker.Actor("first");
  for (int i = 0; i < 10; ++i) {
    const ActorId next = maker.Actor("next");
    maker.Register("x", {last, 1, (int64_t{1} << 30) + 2 * i + 1},
                   {{next, 1, (int64_t{1} << 29) + 2 * i + 1}});
    last = next;
  }
  const absl::Status status = BalanceRates(&maker.graph);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0493"));
}

TEST(BalanceRatesTest, RandomConsistentGraphsAreBalancedAndSmallest) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int n) { return static_cast<int64_t>(random() % n) + 1; };
    GraphMaker maker;
    IdVector<ActorId, int64_t> acts;
    const int num_actors = static_cast<int>(draw(8)) + 1;
    for (int i = 0; i < num_actors; ++i) {
      const ActorId actor = maker.Actor("a");
      acts.push_back(draw(6));
      if (i == 0) continue;
      // The ports fit the acts just drawn: tokens per act are in the ratio of the other actor's
      // acts.
      const ActorId other(static_cast<int>(random() % i));
      maker.Register("r", {other, 1, acts[actor]}, {{actor, 1, acts[other]}});
      const ActorId third(static_cast<int>(random() % i));
      maker.Register("s", {third, acts[third], 1}, {{actor, acts[actor], 1}});
    }
    ASSERT_TRUE(BalanceRates(&maker.graph).ok()) << "seed " << seed;
    EXPECT_TRUE(CheckGraph(maker.graph).ok()) << "seed " << seed;
    int64_t common = 0;
    for (const TimedGraph::Actor& actor : maker.graph.actors) common = std::gcd(common, actor.acts);
    for (int64_t factor = 2; factor <= common; ++factor) {
      if (common % factor != 0) continue;
      TimedGraph smaller = maker.graph;
      for (TimedGraph::Actor& actor : smaller.actors) actor.acts /= factor;
      EXPECT_FALSE(CheckGraph(smaller).ok()) << "seed " << seed << ": a smaller solution exists";
    }
  }
}

}  // namespace
}  // namespace weir::compiler
