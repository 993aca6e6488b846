// Back-pressure in records whose times are known.
#include "tools/trace/back_pressure.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const PressureNode& NodeOf(const BackPressure& pressure, const std::string& name) {
  for (const PressureNode& node : pressure.nodes) {
    if (node.name == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return pressure.nodes[0];
}

TEST(BackPressureTest, AWriterOfAFullRegisterIsBlockedAndItsReaderIsStarved) {
  const BackPressure pressure = FindBackPressure(RunOf(Relay(6).File({0, 1})));
  ASSERT_EQ(pressure.nodes.size(), 2u);
  // From act to act, rank 0 makes x for 10 us and then waits 25 for the slot that rank 1 reads. The
  // last of the five steady steps ends before its next act, so that wait is not in the record.
  const PressureNode& make = NodeOf(pressure, "make x");
  EXPECT_NEAR(make.busy, 50.0 / 150, 1e-12);
  EXPECT_NEAR(make.blocked, 100.0 / 150, 1e-12);
  EXPECT_EQ(make.starved, 0);
  EXPECT_EQ(make.ready, 0);
  EXPECT_EQ(make.row, 0);
  const PressureNode& read = NodeOf(pressure, "read x");
  EXPECT_NEAR(read.busy, 20.0 / 35, 1e-12);
  EXPECT_NEAR(read.starved, 15.0 / 35, 1e-12);
  EXPECT_EQ(read.row, 1);
  EXPECT_THAT(read.ranks, ElementsAre(RankId(1)));
  ASSERT_EQ(pressure.edges.size(), 1u);
  const PressureEdge& edge = pressure.edges[0];
  EXPECT_EQ(edge.bytes_per_step, 4096);
  EXPECT_NEAR(edge.blocked_ns_per_step, 20 * kMicrosecond, 1e-6);
  EXPECT_NEAR(edge.held_up_ns_per_step, 20 * kMicrosecond, 1e-6);
  EXPECT_NEAR(edge.starved_ns_per_step, 15 * kMicrosecond, 1e-6);
  EXPECT_EQ(edge.slots_in_use, 1);  // from the write on, and free at no time
  EXPECT_EQ(edge.worst, "move x");
}

TEST(BackPressureTest, TheCulpritIsTheRegisterWhoseReaderIsNotBlocked) {
  const BackPressure pressure = FindBackPressure(RunOf(Relay(6).File({0, 1})));
  EXPECT_THAT(pressure.chain, ElementsAre(0));
  EXPECT_EQ(PressureText(pressure),
            "register `move x` holds its writers up: `make x` (forward) stands still for 0.020 ms "
            "a step for free slots, which `read x` (backward) holds");
}

// Returns a record of three ranks with one slot each: `a` writes v for `b`, which writes w for the
// slow `c`. In step k, counted in us, a acts from 9k - 8 on and b from 9k on, for 1 us; c acts from
// 9k + 1 on, for 8 us.
std::string Chain() {
  TracedJob job;
  std::vector<ActRing> rings(3, ActRing(64));
  const int first_us[] = {-8, 0, 1}, takes_us[] = {1, 1, 8};
  const char *const names[] = {"a", "b", "c"}, *const registers[] = {"v", "w"};
  for (int n = 0; n < 3; ++n) {
    TracedRank& rank = job.ranks.emplace_back();
    rank.rank = RankId(n);
    rank.acts = &rings[n];
    TracedActor& actor = rank.actors.emplace_back();
    actor.name = actor.function = names[n];
    actor.phase = "forward";
    for (int r = std::max(0, n - 1); r <= std::min(1, n); ++r) {
      const RegisterId id = rank.registers.next_id();
      TracedRegister& to = rank.registers.emplace_back();
      to.name = to.boxing = registers[r];
      to.bytes = 100;
      to.edge = EdgeId(r + 1);
      to.crosses_ranks = true;
      (r == n ? actor.outputs : actor.inputs) = {TracedPort{id, Span()}};
    }
    for (int64_t step = 0; step < 30; ++step) {
      ActRecord& act = rings[n].Add();
      act.actor = ActorId(0);
      act.step = step;
      act.start = act.ready = kBegin + (9 * step + first_us[n]) * kMicrosecond;
      act.end = act.start + takes_us[n] * kMicrosecond;
    }
  }
  std::stringstream out;
  EXPECT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  return out.str();
}

TEST(BackPressureTest, ABlockedReaderPassesTheBlameOnToItsOwnReader) {
  const BackPressure pressure = FindBackPressure(RunOf(Chain()));
  EXPECT_GT(NodeOf(pressure, "a").blocked, 0.8);
  EXPECT_GT(NodeOf(pressure, "b").blocked, 0.7);
  EXPECT_EQ(NodeOf(pressure, "c").blocked, 0);
  EXPECT_EQ(NodeOf(pressure, "c").row, 2);
  ASSERT_EQ(pressure.chain.size(), 2u);
  EXPECT_EQ(pressure.edges[pressure.chain[0]].worst, "v");
  EXPECT_EQ(pressure.edges[pressure.chain[1]].worst, "w");
  EXPECT_THAT(PressureText(pressure), HasSubstr("register `w` holds its writers up: `b`"));
  EXPECT_THAT(PressureText(pressure), HasSubstr("`a` (forward) waits in turn"));
  EXPECT_THAT(PressureText(BackPressure{}), HasSubstr("no register holds its writers up"));
}

// One rank reads data and computes, by turns. The one slot is free when the compute act ends, at
// which the device goes on at once.
TEST(BackPressureTest, AnActorIsHeldUpByNobodyWhileItsDeviceDoesOtherActs) {
  TracedJob job;
  TracedRank& rank = job.ranks.emplace_back();
  ActRing ring(64);
  rank.acts = &ring;
  for (const char* name : {"read", "compute"}) {
    TracedActor& actor = rank.actors.emplace_back();
    actor.name = actor.function = name;
    actor.phase = "forward";
  }
  rank.registers.emplace_back().name = "data";
  rank.actors[ActorId(0)].outputs =
      rank.actors[ActorId(1)].inputs = {TracedPort{RegisterId(0), Span()}};
  for (int64_t i = 0; i < 12; ++i) {
    ActRecord& act = ring.Add();
    act.actor = ActorId(static_cast<int32_t>(i % 2));
    act.step = i / 2;
    act.start = act.ready = kBegin + i * kMicrosecond;
    act.end = act.start + kMicrosecond;
  }
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const BackPressure pressure = FindBackPressure(RunOf(out.str()));
  ASSERT_EQ(pressure.edges.size(), 1u);
  EXPECT_GT(pressure.edges[0].blocked_ns_per_step, 0);
  EXPECT_EQ(pressure.edges[0].held_up_ns_per_step, 0);
  EXPECT_TRUE(pressure.chain.empty());
}

TEST(BackPressureTest, RunsOfManyFunctionsHaveANodeForAllOfAKind) {
  TracedJob job;
  TracedRank& rank = job.ranks.emplace_back();
  ActRing ring(1024);
  rank.acts = &ring;
  for (int i = 0; i < 70; ++i) {
    TracedActor& actor = rank.actors.emplace_back();
    actor.name = actor.function = absl::StrCat(i % 2 == 0 ? "forward" : "backward", " part_", i);
    actor.phase = i % 2 == 0 ? "forward" : "backward";
    ActRecord& act = ring.Add();
    act.actor = ActorId(i);
    act.start = act.ready = kBegin + i * kMicrosecond;
    act.end = act.start + kMicrosecond;
  }
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const BackPressure pressure = FindBackPressure(RunOf(out.str()));
  ASSERT_EQ(pressure.nodes.size(), 2u);
  EXPECT_EQ(NodeOf(pressure, "forward").actors, 35);
}

}  // namespace
}  // namespace weir::trace
