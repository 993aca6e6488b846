// The memory of a record whose times are known.
#include "tools/trace/memory_use.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

// One rank whose acts a, b, c and d take 1 us each. a writes v (100 bytes) and b writes w (1000
// bytes), both for c. A weight has 500 bytes, and its register lies in the same place.
class FourActs {
 public:
  FourActs() : ring_(64) {
    TracedRank& rank = job_.ranks.emplace_back();
    rank.acts = &ring_;
    rank.arena_bytes = 2000;
    rank.scratch_bytes = 10;
    rank.states = {{"weight", "weights", 500, 16}};
    for (const char* name : {"a", "b", "c", "d"}) {
      TracedActor& actor = rank.actors.emplace_back();
      actor.name = actor.function = name;
      actor.phase = "forward";
    }
    AddRegister("v", 100, 600);
    AddRegister("w", 1000, 800);
    AddRegister("weight", 500, 16);
    rank.registers[RegisterId(2)].initial_tokens = 1;
    rank.actors[ActorId(0)].outputs = {Port(0)};
    rank.actors[ActorId(1)].outputs = {Port(1)};
    rank.actors[ActorId(2)].inputs = {Port(0), Port(1), Port(2)};
    rank.actors[ActorId(3)].outputs = {Port(2)};
    for (int64_t i = 0; i < 16; ++i) {
      ActRecord& act = ring_.Add();
      act.actor = ActorId(static_cast<int32_t>(i % 4));
      act.step = i / 4;
      act.start = act.ready = kBegin + i * kMicrosecond;
      act.end = act.start + kMicrosecond;
    }
  }
  const TracedJob& job() const { return job_; }
  TracedRank& rank() { return job_.ranks[0]; }

 private:
  static TracedPort Port(int32_t id) { return TracedPort{RegisterId(id), Span()}; }
  void AddRegister(const char* name, int64_t bytes, int64_t offset) {
    TracedRegister& r = job_.ranks[0].registers.emplace_back();
    r.name = name;
    r.bytes = bytes;
    r.arena_offset = offset;
  }

  ActRing ring_;
  TracedJob job_;
};

TEST(MemoryUseTest, ASlotIsInUseFromItsFirstWriteToItsLastRead) {
  const RecordedRun run = RunOf(FourActs().job());
  const MemoryUse use = FindMemoryUse(run, 2);
  ASSERT_EQ(use.ranks.size(), 1u);
  const RankMemory& rank = use.ranks[0];
  EXPECT_EQ(rank.always_bytes,
            510);  // the register in the place of the weight counts no second time
  EXPECT_EQ(rank.state_bytes.at("weights"), 500);
  EXPECT_EQ(rank.peak_bytes, 1610);
  EXPECT_EQ(rank.peak_at - use.begin, kMicrosecond);
  EXPECT_EQ(rank.peak_act, "b");
  // A quarter of the step each: v; v and w; v and w; neither.
  ASSERT_EQ(static_cast<int64_t>(rank.most.size()), kMemoryParts);
  EXPECT_EQ(rank.most[kMemoryParts / 8], 610);
  EXPECT_EQ(rank.most[kMemoryParts * 3 / 8], 1610);
  EXPECT_EQ(rank.most[kMemoryParts * 5 / 8], 1610);
  EXPECT_EQ(rank.most[kMemoryParts * 7 / 8], 510);
}

TEST(MemoryUseTest, WhatIsHeldAtThePeakHasItsWriterAndItsLastReader) {
  const RankMemory rank = FindMemoryUse(RunOf(FourActs().job()), 2).ranks.at(0);
  ASSERT_EQ(rank.held.size(), 2u);
  EXPECT_EQ(rank.held[0].name, "w");
  EXPECT_EQ(rank.held[0].bytes, 1000);
  EXPECT_EQ(rank.held[0].writer, "b");
  EXPECT_EQ(rank.held[0].last_reader, "c");
  EXPECT_EQ(rank.held[0].written_at, kMicrosecond);
  EXPECT_EQ(rank.held[0].read_until, 3 * kMicrosecond);
  EXPECT_EQ(rank.held[1].name, "v");
  EXPECT_EQ(rank.held[1].written_at, 0);
}

TEST(MemoryUseTest, ARegisterBetweenRanksLiesInTheMemoryOfItsReader) {
  const Relay relay(4);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  for (TracedRank& rank : job.ranks) rank.arena_bytes = 8192;
  job.ranks[1].registers[RegisterId(0)].arena_offset = 0;
  const MemoryUse use = FindMemoryUse(RunOf(job), 2);
  ASSERT_EQ(use.ranks.size(), 2u);
  EXPECT_EQ(use.ranks[0].peak_bytes, 0);
  EXPECT_EQ(use.ranks[1].peak_bytes, 4096);
  EXPECT_EQ(use.ranks[1].held.at(0).last_reader, "read x");
}

TEST(MemoryUseTest, ATraceWithoutPlacesHasNoMemory) {
  FourActs acts;
  acts.rank().arena_bytes = 0;
  EXPECT_TRUE(FindMemoryUse(RunOf(acts.job()), 2).ranks.empty());
}

TEST(MemoryUseTest, ARankMayHaveTheMemoryOfAGpu) {
  FourActs acts;
  acts.rank().arena_bytes = int64_t{80} << 30;
  std::stringstream out;
  ASSERT_EQ(WriteTrace(acts.job(), 0, out), absl::OkStatus());
  EXPECT_EQ(ReadRecordedRun(Read(out.str())).status(), absl::OkStatus());
}

TEST(MemoryUseTest, ImpossibleSizesAreRefused) {
  FourActs acts;
  acts.rank().states[0].bytes = -1;
  std::stringstream out;
  ASSERT_EQ(WriteTrace(acts.job(), 0, out), absl::OkStatus());
  EXPECT_THAT(ReadRecordedRun(Read(out.str())).status().message(),
              ::testing::HasSubstr("memory of rank 0 has impossible numbers"));
}

}  // namespace
}  // namespace weir::trace
