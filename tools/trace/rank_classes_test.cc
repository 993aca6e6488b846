// A record of one rank that stands for a class of four, with its times known: the rank makes x in
// 10 us and sends it to a rank of its class. What that rank sends back is there 5 us later, and is
// read for 20 us.
#include "tools/trace/rank_classes.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trace/last_state.h"
#include "tools/trace/relay_testing.h"
#include "tools/trace/trace_report.h"
#include "tools/trace/transfers.h"
#include "tools/trace/why_slow.h"

namespace weir::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSteps = 4;

// The ring of four ranks, as rank 0 alone tells of it.
class Ring {
 public:
  Ring() : acts_(2 * kSteps) {
    int64_t at = kBegin;
    for (int64_t step = 0; step < kSteps; ++step) {
      Add(0, step, at, 10, ActRecord::Wait::kNone);
      Add(1, step, at + 15 * kMicrosecond, 20, ActRecord::Wait::kInput);
      at += 35 * kMicrosecond;
    }
    job_.plan_id = "ring";
    job_.num_ranks = 4;
    TracedRank& rank = job_.ranks.emplace_back();
    rank.device = "stage 0";
    for (int i = 0; i < 4; ++i) rank.stands_for.Add(RankId(i));
    rank.actors.push_back(Actor("make x"));
    rank.actors[ActorId(0)].outputs = {TracedPort{RegisterId(0), Span()}};
    rank.actors.push_back(Actor("read x"));
    rank.actors[ActorId(1)].inputs = {TracedPort{RegisterId(1), Span()}};
    rank.actors[ActorId(1)].outputs = {TracedPort{RegisterId(2), Span()}};
    rank.registers.push_back(Crossing("move x", 0, 1));
    rank.registers.push_back(Crossing("move x", 1, 0));
    rank.registers.push_back(Crossing("move norm", 0, 3));
    rank.registers.back().on_time = true;
    rank.registers.back().edge = EdgeId(9);
    rank.acts = &acts_;
  }
  TracedJob& job() { return job_; }
  TracedRank& rank() { return job_.ranks[0]; }
  std::string File() const {
    std::stringstream out;
    EXPECT_EQ(WriteTrace(job_, 0, out), absl::OkStatus());
    return out.str();
  }

 private:
  static TracedActor Actor(const std::string& function) {
    TracedActor actor;
    actor.name = "actor of " + function;
    actor.function = function;
    actor.phase = "forward";
    return actor;
  }
  // Both ends of x have the edge of the reader's register.
  static TracedRegister Crossing(const std::string& boxing, int from, int to) {
    TracedRegister r;
    r.name = absl::StrCat(boxing, " rank ", from, " to ", to);
    r.boxing = boxing;
    r.bytes = 1000;
    r.edge = EdgeId(7);
    r.crosses_ranks = true;
    r.other_rank = RankId(from + to);
    r.token_holder = r.slot_holder = absl::StrCat("rank ", from + to);
    return r;
  }
  void Add(int actor, int64_t step, int64_t start, int64_t microseconds, ActRecord::Wait wait) {
    ActRecord& act = acts_.Add();
    act.actor = ActorId(actor);
    act.step = step;
    act.start = act.ready = start;
    act.end = start + microseconds * kMicrosecond;
    act.wait = wait;
    act.waited_register = RegisterId(1);
  }

  ActRing acts_;
  TracedJob job_;
};

TEST(RankClassesTest, TheOtherEndOfAMessageIsFoundInTheClassOfItsRank) {
  const RecordedRun run = RunOf(Ring().File());
  EXPECT_THAT(run.missing, IsEmpty());
  ASSERT_EQ(run.registers.size(), 1u)
      << "the register whose other end nobody stands for is left out";
  const RecordedRegister& x = run.registers.front();
  EXPECT_EQ(x.name, "move x rank 1 to 0");
  EXPECT_EQ(run.SenderOf(x), RankId(1));
  EXPECT_EQ(run.ReceiverOf(x), RankId(0));
  const RecordedAct& read = run.ranks.front().acts[1];
  EXPECT_EQ(run.Cause(read), &run.ranks.front().acts[0]);
  EXPECT_FALSE(FindLastState(run).has_value()) << "no rank is missing";
}

TEST(RankClassesTest, AReplayIsAsExactAsThatOfARunOfAllRanks) {
  const absl::StatusOr<WhySlow> why = FindWhySlow(Read(Ring().File()), {});
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_DOUBLE_EQ(why->recorded_step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why->replayed_step_ns, 35 * kMicrosecond);
  const absl::StatusOr<WhySlow> fast =
      FindWhySlow(Read(Ring().File()), {.what_ifs = {"link:1-0=5"}});
  ASSERT_TRUE(fast.ok()) << fast.status();
  EXPECT_DOUBLE_EQ(fast->what_ifs[0].step_ns, 31 * kMicrosecond) << "the way takes 1 us";
}

TEST(RankClassesTest, BytesAndLinksAreThoseOfAllRanks) {
  const RecordedRun run = RunOf(Ring().File());
  const std::vector<TransferRow> rows = FindTransfers(run);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].links, 4);
  EXPECT_DOUBLE_EQ(rows[0].bytes_per_step, 4000);
}

TEST(RankClassesTest, TheReportNamesWhoStandsForWhom) {
  const TraceReport report = MakeTraceReport(Read(Ring().File()));
  EXPECT_TRUE(report.by_symmetry());
  const std::string text = ToText(report);
  EXPECT_THAT(text, HasSubstr("plan ring: 4 devices"));
  EXPECT_THAT(text, HasSubstr("4 ranks are simulated by 1: rank 0 stands for ranks 0 to 3\n"));
  EXPECT_THAT(text, HasSubstr("rank 0 · stage 0 x4"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("lacks")));
  ASSERT_EQ(report.waits.size(), 1u);
  EXPECT_EQ(report.waits[0].holder, "actor 'actor of make x' on rank 1");
}

TEST(RankClassesTest, RanksOfNoClassAreMissing) {
  Ring ring;
  ring.job().num_ranks = 6;
  const absl::StatusOr<RecordedRun> run = ReadRunWithGaps(Read(ring.File()));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->missing, ::testing::ElementsAre(RankId(4), RankId(5)));
  EXPECT_THAT(ToText(MakeTraceReport(Read(ring.File()))), HasSubstr("the trace lacks ranks 4, 5"));
}

TEST(RankClassesTest, AnImpossibleClassIsTheRankAlone) {
  proto::PlanFacts facts;
  proto::RankRange* range = facts.add_stands_for();
  range->set_first(2);
  range->set_count(3);
  EXPECT_EQ(ClassOf(RankId(3), facts).ranks.Text(), "2 to 4");
  EXPECT_EQ(ClassOf(RankId(7), facts).ranks.Text(), "7") << "a class has its own rank";
  range->set_count(1 << 30);
  EXPECT_EQ(ClassOf(RankId(3), facts).ranks.Text(), "3");
  RankRanges all;
  for (int rank = 0; rank < 4; ++rank) all.Add(RankId(rank));
  EXPECT_THAT(RanksInNoClass(3, {{RankId(0), all}}), ::testing::SizeIs(3))
      << "a class of more ranks than the job has is no class";
}

}  // namespace
}  // namespace weir::trace
