// Hand-made records whose paths and replays are known in closed form.
#include "tools/trace/why_slow.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/trace.pb.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/causes.h"
#include "tools/trace/relay_testing.h"
#include "tools/trace/replay.h"
#include "tools/trace/report_text.h"
#include "tools/trace/trace_report.h"

namespace weir::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

WhySlow WhyOf(const std::string& file, const WhySlowOptions& options = {}) {
  absl::StatusOr<WhySlow> why = FindWhySlow(Read(file), options);
  EXPECT_TRUE(why.ok()) << why.status();
  return why.ok() ? *std::move(why) : WhySlow{};
}

TEST(WhySlowTest, ThePathOfARelayIsItsActsAndTheWayBetweenThem) {
  const WhySlow why = WhyOf(Relay(6).File({0, 1}));
  EXPECT_EQ(why.path.first_step, 1);
  EXPECT_EQ(why.path.last_step, 5);
  EXPECT_DOUBLE_EQ(why.path.step_ns, 35 * kMicrosecond);
  ASSERT_EQ(why.path.acts.size(), 2u);
  EXPECT_EQ(why.path.acts[0].function, "read x");
  EXPECT_EQ(why.path.acts[0].rank, RankId(1));
  EXPECT_DOUBLE_EQ(why.path.acts[0].share, 20.0 / 35);
  EXPECT_DOUBLE_EQ(why.path.acts[0].acts_per_step, 1);
  EXPECT_EQ(why.path.acts[1].function, "make x");
  EXPECT_DOUBLE_EQ(why.path.acts[1].share, 10.0 / 35);
  // The token takes 5 us on its way; the slot takes no time on its way back.
  ASSERT_EQ(why.path.edges.size(), 2u);
  EXPECT_EQ(why.path.edges[0].kind, PathEdge::Kind::kToken);
  EXPECT_EQ(why.path.edges[0].name, "move x rank 0 to 1");
  EXPECT_DOUBLE_EQ(why.path.edges[0].share, 5.0 / 35);
  EXPECT_EQ(why.path.edges[1].kind, PathEdge::Kind::kSlot);
  EXPECT_EQ(why.path.edges[1].from, RankId(1));
  EXPECT_EQ(why.path.edges[1].to, RankId(0));
  EXPECT_DOUBLE_EQ(why.path.phases.at("backward"), 20.0 / 35);
  EXPECT_DOUBLE_EQ(why.path.ranks.at(RankId(0)), 10.0 / 35);
  EXPECT_DOUBLE_EQ(why.path.in_transfer, 5.0 / 35);
  EXPECT_DOUBLE_EQ(why.path.between_acts, 0);
}

TEST(WhySlowTest, OneStepHasAPathOfItsOwn) {
  const std::string file = Relay(6).File({0, 1});
  for (int64_t step = 0; step < 6; ++step) {
    const WhySlow why = WhyOf(file, {.step = step});
    EXPECT_EQ(why.path.first_step, step);
    EXPECT_EQ(why.path.last_step, step);
    EXPECT_DOUBLE_EQ(why.path.step_ns, 35 * kMicrosecond);
  }
  EXPECT_THAT(FindWhySlow(Read(file), {.step = 6}).status().message(),
              AllOf(HasSubstr("--step 7"), HasSubstr("a step from 1 to 6")));
}

TEST(WhySlowTest, AStepThatIsAnOutlierIsNamedAndLeftOut) {
  const std::string file = Relay(12, /*slow_step=*/7).File({0, 1});
  const WhySlow why = WhyOf(file);
  ASSERT_EQ(why.outliers.size(), 1u);
  EXPECT_EQ(why.outliers[0].step, 7);
  EXPECT_DOUBLE_EQ(why.outliers[0].ns, 815 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why.median_step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why.path.step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why.path.acts[0].share, 20.0 / 35);
  EXPECT_DOUBLE_EQ(why.recorded_step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why.replayed_step_ns, 35 * kMicrosecond);
  const std::string text = ToText(why, 5);
  EXPECT_THAT(text, HasSubstr("step 8 is an outlier: it took 0.815 ms, 23 times the median"));
  EXPECT_THAT(text, HasSubstr("mean of steps 2 to 12 without outliers"));
  EXPECT_DOUBLE_EQ(WhyOf(file, {.step = 7}).path.step_ns, 815 * kMicrosecond);
  EXPECT_TRUE(WhyOf(Relay(12).File({0, 1})).outliers.empty());
}

// Rank 0 packs the accuracy of each step for rank 1, which reports it, and updates.
TEST(WhySlowTest, ExchangesThatServeReportsAloneAreMarked) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  job.ranks[0].actors[ActorId(0)].phase = "boxing";
  job.ranks[1].actors[ActorId(0)].phase = "metric";
  TracedActor& update = job.ranks[0].actors.emplace_back();
  update.name = update.function = "update";
  update.phase = "update";
  ActRing acts(64);
  for (int64_t step = 0; step < 6; ++step) {
    const ActRecord pack = job.ranks[0].acts->at(step);
    acts.Add() = pack;
    ActRecord& act = acts.Add();
    act = {};
    act.actor = ActorId(1);
    act.step = step;
    act.start = act.ready = pack.end;
    act.end = pack.end + kMicrosecond;
  }
  job.ranks[0].acts = &acts;
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const WhySlow why = WhyOf(out.str());
  ASSERT_FALSE(why.path.edges.empty());
  for (const PathEdge& edge : why.path.edges) EXPECT_TRUE(edge.serves_reports) << edge.name;
  for (const PathActs& of : why.path.acts)
    EXPECT_EQ(of.serves_reports, of.function != "update") << of.function;
  for (const PathEdge& edge : WhyOf(relay.File({0, 1})).path.edges)
    EXPECT_FALSE(edge.serves_reports);
}

// Returns a report in which the boxings for nothing would save a part of the step. On the path, the
// exchange of a metric takes `metric` of a step, and that of `y` takes `work`.
WhySlow WithExchanges(double metric, double work, double saves) {
  WhySlow why;
  why.recorded_step_ns = why.replayed_step_ns = 1e6;
  why.path.edges = {{"all-reduce accuracy rank 0 to 1", RankId(0), RankId(1),
                     PathEdge::Kind::kToken, metric, metric * 1e6, 1, /*serves_reports=*/true},
                    {"all-reduce y rank 0 to 1", RankId(0), RankId(1), PathEdge::Kind::kToken, work,
                     work * 1e6, 1}};
  WhatIfRow row;
  row.spec = "free:boxing";
  row.finished = true;
  row.gain = saves;
  why.what_ifs = {row};
  return why;
}

TEST(WhySlowTest, AdviceIsAboutWhatCanBeChangedAndCostsAFewPerCent) {
  EXPECT_THAT(Advice(WithExchanges(0.3, 0.1, 0.4)), HasSubstr("`all-reduce y`"));
  const std::string spread = Advice(WithExchanges(0.3, 0.01, 0.4));
  EXPECT_THAT(spread, ::testing::Not(HasSubstr("all-reduce")));
  EXPECT_THAT(spread, HasSubstr("saves 3 % of a step or more"));
  EXPECT_THAT(Advice(WithExchanges(0, 0.1, 0.01)), HasSubstr("saves 3 % of a step or more"));
}

TEST(WhySlowTest, AReplayWithoutChangesTakesTheTimeThatWasRecorded) {
  const WhySlow why = WhyOf(Relay(6).File({0, 1}));
  EXPECT_DOUBLE_EQ(why.recorded_step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(why.replayed_step_ns, 35 * kMicrosecond);
}

TEST(WhySlowTest, ChangesOfARelayGiveItsClosedForms) {
  const std::string file = Relay(8).File({0, 1});
  const std::vector<std::pair<std::string, double>> cases = {
      {"slots:move x=2", 20},  // the reader alone is the bound
      {"slots:move x=+1", 20},
      {"slots:move x rank 0 to 1=9", 20},
      {"free:make x", 25},
      {"free:read x", 15},
      {"free:actor of*", 5},
      {"free:backward", 15},  // a phase
      {"link:0-1=2", 32.5},
      {"link:all=inf", 30},
      {"link:all=inf;slots:move x=2; free:read x", 10},
  };
  for (const auto& [spec, microseconds] : cases) {
    const WhySlow why = WhyOf(file, {.what_ifs = {spec}});
    ASSERT_EQ(why.what_ifs.size(), 1u) << spec;
    EXPECT_TRUE(why.what_ifs[0].finished) << spec;
    EXPECT_DOUBLE_EQ(why.what_ifs[0].step_ns, microseconds * kMicrosecond) << spec;
    EXPECT_NEAR(why.what_ifs[0].gain, 1 - microseconds / 35, 1e-9) << spec;
    EXPECT_EQ(why.what_ifs[0].more_bytes, spec.find("slots") == std::string::npos ? 0
                                          : spec.find("=9") != std::string::npos  ? 8 * 4096
                                                                                  : 4096)
        << spec;
  }
}

TEST(WhySlowTest, WhatIsTriedUnaskedComesBestFirst) {
  const WhySlow why = WhyOf(Relay(8).File({0, 1}));
  ASSERT_GE(why.what_ifs.size(), 5u);
  EXPECT_EQ(why.what_ifs[0].spec, "free:read x");
  for (size_t i = 1; i < why.what_ifs.size(); ++i)
    EXPECT_GE(why.what_ifs[i - 1].gain, why.what_ifs[i].gain);
  const auto tried = [&why](const std::string& spec) {
    for (const WhatIfRow& row : why.what_ifs) {
      if (row.spec == spec) return true;
    }
    return false;
  };
  EXPECT_TRUE(tried("slots:move x=+1")) << ToText(why, 99);
  EXPECT_TRUE(tried("free:make x"));
  EXPECT_TRUE(tried("link:all=2"));
  const std::string text = ToText(why, 3);
  EXPECT_THAT(text, HasSubstr("57.1 %      0.020 ms  `read x` on rank 1\n"));
  EXPECT_THAT(text, HasSubstr("waits for `move x` under way, rank 0 to 1\n"));
  EXPECT_THAT(text, HasSubstr("0.035 ms: +0.0 %"));  // the line may break before it
  EXPECT_THAT(text, HasSubstr("`read x` takes no time"));
}

TEST(WhySlowTest, AChangeThatNamesNothingSaysWhatThereIs) {
  const TraceReader trace = Read(Relay(3).File({0, 1}));
  const auto error = [&trace](const std::string& spec) {
    return std::string(FindWhySlow(trace, {.what_ifs = {spec}}).status().message());
  };
  EXPECT_THAT(error("slots:y=2"), HasSubstr("'move x'"));
  EXPECT_THAT(error("free:y"), HasSubstr("'make x', 'read x'"));
  EXPECT_THAT(error("link:1-0=2"), HasSubstr("'0-1'"));
  for (const char* spec :
       {"", "slots", "slots:move x", "slots:move x=0", "slots:move x=two", "slots:move x=-1",
        "link:all=0", "link:all=nan", "more:x=2", "free:make x;", ";"}) {
    EXPECT_THAT(error(spec), HasSubstr("W0533")) << spec;
  }
}

// Returns the trace of two ranks that do the same work: a layer's function three times a step,
// after which each rank waits for the other's token. The acts of rank 1 take `factor` times as
// long, with a core for `core` of that time.
std::string EqualWork(double factor, double core, int64_t planned_of_rank_1 = 1000,
                      double core_of_rank_0 = 1) {
  constexpr int64_t kSteps = 5, kAct = 1'000'000;
  const int64_t slow = static_cast<int64_t>(kAct * factor), step_ns = 3 * std::max(kAct, slow);
  TracedJob job;
  job.plan_id = "equal work";
  std::vector<ActRing> rings(2, ActRing(256));
  for (int number : {0, 1}) {
    TracedRank& rank = job.ranks.emplace_back();
    rank.rank = RankId(number);
    rank.device = absl::StrCat("stage 0, dp=", number);
    rank.acts = &rings[number];
    const int64_t act_ns = number == 0 ? kAct : slow;
    for (int layer = 0; layer < 3; ++layer) {
      TracedActor& actor = rank.actors.emplace_back();
      actor.name = actor.function = absl::StrCat("forward layers.", layer);
      actor.phase = "forward";
      actor.planned_ns = number == 0 ? 1000 : planned_of_rank_1;
      actor.inputs = {TracedPort{RegisterId(layer == 0 ? 0 : 1 + layer), Span()}};
      actor.outputs = {TracedPort{RegisterId(layer == 2 ? 1 : 2 + layer), Span()}};
    }
    for (int r = 0; r < 4; ++r) {
      TracedRegister& reg = rank.registers.emplace_back();
      reg.bytes = 4;
      reg.slots = 2;
      if (r > 1) {
        reg.name = absl::StrCat("y", r);
        continue;
      }
      const bool in = r == 0;
      reg.name = in ? absl::StrCat("all-reduce y rank ", 1 - number, " to ", number)
                    : absl::StrCat("all-reduce y rank ", number, " to ", 1 - number);
      reg.boxing = "all-reduce y";
      reg.edge = EdgeId(in ? 10 + number : 11 - number);
      reg.crosses_ranks = true;
      reg.initial_tokens = 1;
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      for (int layer = 0; layer < 3; ++layer) {
        ActRecord& act = rings[number].Add();
        act = {};
        act.actor = ActorId(layer);
        act.step = step;
        act.start = act.ready = kBegin + step * step_ns + layer * act_ns;
        act.end = act.start + act_ns;
        act.cpu_us = static_cast<uint32_t>((number == 0 ? core_of_rank_0 : core) *
                                           static_cast<double>(act_ns) * 1e-3);
        if (layer == 0 && step > 0) {
          act.wait = ActRecord::Wait::kInput;
          act.waited_register = RegisterId(0);
        }
      }
    }
  }
  std::stringstream out;
  EXPECT_EQ(WriteTrace(job, TraceBeginNs(job), out), absl::OkStatus());
  return out.str();
}

TEST(WhySlowTest, ARankThatIsSlowerAtEqualWorkIsNamed) {
  const WhySlow why = WhyOf(EqualWork(2.5, 0.4));
  ASSERT_EQ(why.speeds.stragglers.size(), 1u);
  const Straggler& slow = why.speeds.stragglers[0];
  EXPECT_EQ(slow.rank, RankId(1));
  EXPECT_DOUBLE_EQ(slow.factor, 2.5);
  EXPECT_EQ(slow.peers, std::vector<RankId>{RankId(0)});
  ASSERT_EQ(slow.functions.size(), 1u);  // the layers are one
  EXPECT_EQ(slow.functions[0].name, "forward layers.*");
  EXPECT_DOUBLE_EQ(slow.functions[0].own_ns, 2.5e6);
  EXPECT_DOUBLE_EQ(slow.functions[0].others_ns, 1e6);
  EXPECT_NEAR(slow.more_ns_per_step, 4.5e6, 1);
  EXPECT_NEAR(why.speeds.devices[1].core_share, 0.4, 1e-3);
  EXPECT_THAT(Advice(why), HasSubstr("rank 1 is slow: its acts take 2.5 times as long as the same "
                                     "acts of rank 0; it has a core for only 40 %"));
  EXPECT_THAT(ToText(why, 5),
              HasSubstr("`forward layers.*`: an act takes 2.500 ms, elsewhere 1.000 ms"));
  EXPECT_THAT(Advice(WhyOf(EqualWork(2.5, 1))), HasSubstr("its device is slower"));
}

std::vector<Cause> CausesOf(const std::string& file) {
  return FindCauses(MakeTraceReport(Read(file)), WhyOf(file));
}

TEST(CausesTest, ACauseHasItsTimeAndTheViewThatShowsIt) {
  const WhySlow why = WhyOf(EqualWork(2.5, 1));
  const std::vector<Cause> causes = CausesOf(EqualWork(2.5, 1));
  ASSERT_FALSE(causes.empty());
  EXPECT_EQ(causes[0].view, "skew");
  EXPECT_DOUBLE_EQ(causes[0].ns_per_step, causes[0].share * why.recorded_step_ns);
  EXPECT_THAT(ToText(causes), HasSubstr("4.500 ms  rank 1 is slow"));
}

TEST(CausesTest, MissingCoresComeBeforeASlowRank) {
  const std::vector<Cause> lacking = CausesOf(EqualWork(2.5, 0.1, 1000, /*core_of_rank_0=*/0.6));
  ASSERT_GE(lacking.size(), 2u);
  EXPECT_THAT(lacking[0].text, HasSubstr("cores are missing: rank 1 has one for only 10 %"));
  EXPECT_THAT(lacking[1].text, HasSubstr("rank 1 is slow"));
  const std::vector<Cause> slow = CausesOf(EqualWork(2.5, 1));
  ASSERT_FALSE(slow.empty());
  EXPECT_THAT(slow[0].text, HasSubstr("rank 1 is slow"));
}

TEST(WhySlowTest, IfAllRanksLackACoreTheWorstOffIsNamed) {
  const std::string uneven = Advice(WhyOf(EqualWork(2.5, 0.1, 1000, /*core_of_rank_0=*/0.6)));
  EXPECT_THAT(uneven, HasSubstr("cores are missing: rank 1 has one for only 10 %, and rank 0, the "
                                "best off, for 60 %, of the time that it works"));
  const std::string even = Advice(WhyOf(EqualWork(1.1, 0.5, 1000, /*core_of_rank_0=*/0.55)));
  EXPECT_THAT(even, HasSubstr("cores are missing: a device has one for 50 to 55 % of the time"));
  const std::string equal = Advice(WhyOf(EqualWork(1.1, 0.5, 1000, /*core_of_rank_0=*/0.5)));
  EXPECT_THAT(equal, HasSubstr("cores are missing: a device has one for 50 % of the time"));
}

TEST(WhySlowTest, AStepAsPlannedHasTheTimesOfThePlanAndTheOrderOfTheProtocol) {
  const Relay relay(6);
  EXPECT_TRUE(WhyOf(relay.File({0, 1})).as_planned.empty()) << "its plan expects no times";
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  for (TracedRank& rank : job.ranks) rank.registers[RegisterId(0)].planned_way_ns = 2500;
  job.ranks[0].actors[ActorId(0)].planned_ns = 4000;
  job.ranks[1].actors[ActorId(0)].planned_ns = 6000;
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const WhySlow why = WhyOf(out.str());
  EXPECT_DOUBLE_EQ(why.replayed_step_ns, 35 * kMicrosecond) << "other replays are as recorded";
  const std::vector<ReplayedAct>& acts = why.as_planned;
  ASSERT_EQ(acts.size(), 2u);
  EXPECT_EQ(acts[0].number, 4);  // of the last step but one, so that a step overlaps it
  EXPECT_EQ(acts[0].end - acts[0].begin, 4000);
  EXPECT_EQ(acts[1].begin - acts[0].end, 2500);
  EXPECT_EQ(acts[1].end - acts[1].begin, 6000);
  // The second step of the replay begins once the slot is back, as quickly as a message.
  EXPECT_EQ(acts[0].begin, 4000 + 2500 + 6000 + 2500);
}

TEST(WhySlowTest, AStepAsPlannedKnowsNothingOfARankThatBeganLateAfterARest) {
  constexpr int64_t kSteps = 6, kFirstAfterRest = kSteps - 2, kLate = 500 * kMicrosecond;
  ActRing made(64), read(64);
  const auto add = [](ActRing* ring, bool is_act, int64_t step, int64_t start, int64_t end) {
    ActRecord& record = ring->Add();
    if (is_act) record.actor = ActorId(0);
    record.waited_register = RegisterId(0);
    record.wait = ring->size() == 1 ? ActRecord::Wait::kNone : ActRecord::Wait::kInput;
    record.step = step;
    record.ready = record.start = start;
    record.end = end;
  };
  int64_t at = kBegin;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kFirstAfterRest) {
      add(&made, /*is_act=*/false, step, at + kLate, at + kLate);
      add(&read, /*is_act=*/false, step, at + 3 * kMicrosecond, at + 3 * kMicrosecond);
      at += kLate;
    }
    add(&made, /*is_act=*/true, step, at, at + 10 * kMicrosecond);
    at += 15 * kMicrosecond;
    add(&read, /*is_act=*/true, step, at, at + 20 * kMicrosecond);
    at += 20 * kMicrosecond;
  }
  const Relay relay(kSteps);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  job.ranks[0].acts = &made;
  job.ranks[1].acts = &read;
  for (TracedRank& rank : job.ranks) {
    rank.registers[RegisterId(0)].planned_way_ns = 2500;
    rank.actors[ActorId(0)].planned_ns = 4000;
  }
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const std::vector<ReplayedAct> acts = WhyOf(out.str()).as_planned;
  ASSERT_EQ(acts.size(), 2u);
  EXPECT_EQ(acts[0].number, kFirstAfterRest);
  EXPECT_EQ(acts[0].begin, 2 * (4000 + 2500));  // the second step, as soon as the slot is back
  EXPECT_EQ(acts[1].begin - acts[0].end, 2500);
}

TEST(WhySlowTest, ARankWithOtherWorkIsNotSlow) {
  EXPECT_TRUE(WhyOf(EqualWork(1.1, 1)).speeds.stragglers.empty());
  EXPECT_TRUE(WhyOf(EqualWork(2.5, 1, /*planned_of_rank_1=*/2500)).speeds.stragglers.empty())
      << "its plan promises as much";
}

TEST(WhySlowTest, AFasterRankIsReplayed) {
  const std::string file = EqualWork(2.5, 1);
  EXPECT_NEAR(WhyOf(file, {.what_ifs = {"rank:1=2.5"}}).what_ifs[0].gain, 0.6,
              0.1);  // messages keep their times
  EXPECT_NEAR(WhyOf(file, {.what_ifs = {"rank:all=2"}}).what_ifs[0].gain, 0.5, 0.01);
  EXPECT_NEAR(WhyOf(file, {.what_ifs = {"free:forward layers.*"}}).what_ifs[0].gain, 1, 0.01);
  EXPECT_NEAR(WhyOf(file, {.what_ifs = {"free:*layers.1"}}).what_ifs[0].gain, 1.0 / 3, 0.01);
  EXPECT_THAT(FindWhySlow(Read(file), {.what_ifs = {"rank:2=2"}}).status().message(),
              HasSubstr("there are '0', '1'"));
}

TEST(WhySlowTest, RowsOfEqualLayersAreOneRow) {
  const std::string text = ToText(WhyOf(EqualWork(1, 1)), 5);
  EXPECT_THAT(text, HasSubstr("`forward layers.*` x3 on rank 0"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("layers.1")));
}

TEST(WhySlowTest, ALineOfManySmallLayersNamesItsRanksInTheirOrder) {
  CriticalPath path;
  const auto add = [&path](const std::string& function, int rank, double share) {
    PathActs& acts = path.acts.emplace_back();
    acts.function = function;
    acts.rank = RankId(rank);
    acts.share = share;
  };
  for (int layer = 0; layer < 40; ++layer)
    add(absl::StrCat("norm layers.", layer), layer < 20 ? 16 : 8, 0.0005);
  add("norm layers.40", 24, 0.0005);  // not worth a word beside the others
  add("clip", 3, 0.0005);             // and here there are no others
  const std::vector<PathLine> lines = PathLines(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "`norm layers.*` x41 on rank 8, 16");
  EXPECT_EQ(lines[1].text, "`clip` on rank 3");
}

TEST(WhySlowTest, NoLineIsWiderThanTheReport) {
  for (const std::string& file : {EqualWork(2.5, 0.4), Relay(8).File({0, 1})}) {
    const std::string text =
        absl::StrCat(ToText(WhyOf(file), 99), ToText(MakeTraceReport(Read(file)), 99));
    for (absl::string_view line : absl::StrSplit(text, '\n'))
      EXPECT_LE(line.size(), kReportColumns) << line;
  }
}

TEST(ReportTextTest, LayersLoseTheirNumbersAndOtherNamesDoNot) {
  EXPECT_EQ(LayerFamily("backward layers.3"), "backward layers.*");
  EXPECT_EQ(LayerFamily("all-reduce layers.12.d_wq +15"), "all-reduce layers.*.d_wq +15");
  EXPECT_EQ(LayerFamily("encoder.0.blocks.11.y"), "encoder.*.blocks.*.y");
  EXPECT_EQ(LayerFamily("backward main.1"), "backward main.1");
  EXPECT_EQ(LayerFamily("domain.1"), "domain.*");
  EXPECT_EQ(LayerFamily("x.1a, v2.5"), "x.1a, v2.*");
}

TEST(ReportTextTest, LinesBreakAtSpaces) {
  std::string text;
  AppendLine("  row " + std::string(60, 'a') + " " + std::string(60, 'b') + " end", 4, &text);
  EXPECT_EQ(text, "  row " + std::string(60, 'a') + "\n    " + std::string(60, 'b') + " end\n");
  text.clear();
  AppendLine(std::string(150, 'c'), 4, &text);
  EXPECT_EQ(text, std::string(150, 'c') + "\n");
}

TEST(WhySlowTest, ATraceThatLacksARankIsNotReplayed) {
  const Relay relay(3);
  const absl::Status status = FindWhySlow(Read(relay.File({0})), {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("on a rank that the trace lacks"));
  // Two processes each write a part.
  EXPECT_DOUBLE_EQ(WhyOf(relay.File({0}) + relay.File({1})).replayed_step_ns, 35 * kMicrosecond);
}

// Older builds wrote the facts of the plans as field 20040 of a packet.
TEST(WhySlowTest, FactsThatAnOlderBuildWroteAreNotTakenForOurs) {
  proto::Trace file;
  ASSERT_TRUE(file.ParseFromString(Relay(6).File({0, 1})));
  int num_plans = 0;
  for (proto::TracePacket& packet : *file.mutable_packet()) {
    if (!packet.has_weir_plan()) continue;
    proto::TracePacket::GetReflection()->MutableUnknownFields(&packet)->AddLengthDelimited(
        20040, packet.weir_plan().SerializeAsString());
    packet.clear_weir_plan();
    ++num_plans;
  }
  EXPECT_EQ(num_plans, 2);
  const TraceReader reader = Read(file.SerializeAsString());
  EXPECT_TRUE(reader.plans.empty());
  EXPECT_FALSE(reader.processes.empty());
  const absl::Status status = FindWhySlow(reader, {}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("traces of older builds do not"));
}

TEST(WhySlowTest, StepsThatAreNotWholeAreLeftOut) {
  const Relay relay(6);
  ActRing partial(4);  // the ring has dropped the first two acts of rank 1
  for (int64_t i = 2; i < 6; ++i) {
    const TracedRank rank = relay.Rank(1);
    partial.Add() = rank.acts->at(i);
  }
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  job.ranks[1].acts = &partial;
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const WhySlow why = WhyOf(out.str());
  EXPECT_EQ(why.path.first_step, 3);  // of the whole ones the first is 2
  EXPECT_EQ(why.path.last_step, 5);
  EXPECT_DOUBLE_EQ(why.replayed_step_ns, 35 * kMicrosecond);
}

}  // namespace
}  // namespace weir::trace
