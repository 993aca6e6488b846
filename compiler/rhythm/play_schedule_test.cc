#include "compiler/rhythm/play_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

PipelineSchedule ScheduleFor(ScheduleKind kind, int64_t stages, int64_t micro_batches,
                             int64_t virtual_stages = 0) {
  return ScheduleOf({kind, virtual_stages, {}}, stages, micro_batches);
}

TEST(PlaySchedule, AnEvenOneFOneBStepTakesMicroBatchesPlusStagesMinusOneSlots) {
  for (int64_t p : {1, 2, 3, 5}) {
    for (int64_t m : {1, 2, 4, 9}) {
      for (auto kind : {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe}) {
        const PipelineSchedule schedule = ScheduleFor(kind, p, m);
        const SchedulePlay play = PlaySchedule(schedule, EvenCosts(schedule));
        // A slot is a forward and a backward act: 1 + 2 units.
        EXPECT_EQ(play.span, 3 * (m + p - 1)) << Name(kind) << " " << p << " x " << m;
        EXPECT_NEAR(play.bubble, static_cast<double>(p - 1) / static_cast<double>(m + p - 1), 1e-9);
      }
    }
  }
}

TEST(PlaySchedule, InterleavingDividesTheBubbleByTheParts) {
  for (int64_t p : {2, 4}) {
    for (int64_t v : {2, 3}) {
      for (int64_t groups : {1, 2, 3}) {
        const int64_t m = groups * p;
        const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kInterleaved, p, m, v);
        EXPECT_EQ(PlaySchedule(schedule, EvenCosts(schedule)).span, 3 * (m * v + p - 1))
            << p << " stages of " << v << " parts, " << m << " micro-batches";
      }
    }
  }
}

TEST(PlaySchedule, ZeroBubbleIdlesOneUnitForEachOtherStage) {
  for (int64_t p : {2, 3, 4}) {
    for (int64_t m : {2 * p, 3 * p}) {
      const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kZeroBubble, p, m);
      EXPECT_EQ(PlaySchedule(schedule, EvenCosts(schedule)).span, 3 * m + p - 1) << p << " x " << m;
    }
  }
}

TEST(PlaySchedule, TheFormulaOfTheScheduleIsTheBubbleOfAnEvenPlay) {
  for (auto kind : {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe, ScheduleKind::kInterleaved,
                    ScheduleKind::kZeroBubble}) {
    const PipelineSchedule schedule = ScheduleFor(kind, 4, 12);
    const bool splits = schedule.splits_backward();
    EXPECT_NEAR(PlaySchedule(schedule, EvenCosts(schedule)).bubble,
                schedule.BubbleFormula(splits ? 1 : 2, splits ? 1 : 0), 1e-9)
        << Name(kind);
  }
}

// With uneven costs: every act of every pass runs once, after what it reads, never two on a stage
// at a time, and no part holds more micro-batches than the schedule says.
TEST(PlaySchedule, EveryActComesAfterWhatItNeeds) {
  constexpr PipelinePass kForward = PipelinePass::kForward, kBackward = PipelinePass::kBackward,
                         kWeights = PipelinePass::kWeightGradient;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    const auto kind = static_cast<ScheduleKind>(seed % 4);
    const PipelineSchedule schedule = ScheduleFor(kind, 2 + below(3), 1 + below(8));
    PartCosts costs = EvenCosts(schedule);
    for (auto& list : costs) {
      for (int64_t& cost : list) cost = 1 + below(9);
    }
    const SchedulePlay play = PlaySchedule(schedule, costs);
    std::map<std::tuple<PipelinePass, int64_t, int64_t>, SchedulePlay::Act> acts;
    for (const std::vector<SchedulePlay::Act>& stage : play.stages) {
      int64_t free_at = 0;
      for (const SchedulePlay::Act& act : stage) {
        EXPECT_GE(act.begin, free_at) << "two acts at a time";
        free_at = act.end;
        EXPECT_EQ(act.end - act.begin, costs[static_cast<int>(act.pass)][act.part]);
        EXPECT_LE(act.end, play.span);
        EXPECT_TRUE(acts.insert({{act.pass, act.part, act.micro_batch}, act}).second) << "twice";
      }
    }
    const int64_t parts = schedule.num_parts(), m = schedule.micro_batches;
    ASSERT_EQ(static_cast<int64_t>(acts.size()), (schedule.splits_backward() ? 3 : 2) * parts * m)
        << "seed " << seed;
    const auto end = [&](PipelinePass pass, int64_t part, int64_t k) {
      return acts.at({pass, part, k}).end;
    };
    for (const auto& [key, act] : acts) {
      const auto& [pass, part, k] = key;
      if (pass == kForward && part > 0) {
        EXPECT_GE(act.begin, end(kForward, part - 1, k));
      }
      if (pass == kForward && k >= schedule.in_flight[part]) {
        EXPECT_GE(act.begin, end(kBackward, part, k - schedule.in_flight[part]));
      }
      if (pass == kBackward) {
        EXPECT_GE(act.begin, end(kForward, part, k));
      }
      if (pass == kBackward && part + 1 < parts) {
        EXPECT_GE(act.begin, end(kBackward, part + 1, k));
      }
      if (pass == kBackward && schedule.gates_backward()) {
        EXPECT_GE(act.begin, end(kForward, parts - 1, m - 1));
      }
      if (pass == kWeights) {
        EXPECT_GE(act.begin, end(kBackward, part, k));
      }
    }
  }
}

TEST(PlaySchedule, APlayThatIsTooLargeToLookAtIsEmpty) {
  const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kOneFOneB, 4, 100'000);
  const SchedulePlay play = PlaySchedule(schedule, EvenCosts(schedule));
  EXPECT_EQ(play.span, 0);
  EXPECT_EQ(play.bubble, 0);
}

TEST(DrawSchedule, AShortChartNumbersMicroBatches) {
  const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kOneFOneB, 2, 2);
  const ScheduleChart chart = DrawSchedule(PlaySchedule(schedule, EvenCosts(schedule)), 80);
  EXPECT_TRUE(chart.numbered);
  EXPECT_EQ(chart.column, 1);
  EXPECT_EQ(chart.text,
            "  stage 0 F0F1····B0B0··B1B1\n"
            "  stage 1 ··F0B0B0F1B1B1····\n");
}

TEST(DrawSchedule, ALongChartLeavesOutItsMiddle) {
  const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kOneFOneB, 2, 40);
  const ScheduleChart chart = DrawSchedule(PlaySchedule(schedule, EvenCosts(schedule)), 30);
  EXPECT_FALSE(chart.numbered);
  EXPECT_EQ(chart.text.substr(0, chart.text.find('\n')),
            "  stage 0 FF··BBFBBFBBFBBFBBFB … BFBBFBB·BB");
}

TEST(DrawSchedule, AnEmptyPlayHasNoChart) { EXPECT_EQ(DrawSchedule({}, 80).text, ""); }

// Two even towers and a join, side by side: a chain of their three stages would take two slots
// more.
TEST(PlaySchedule, StagesSideBySideWorkAtTheSameTime) {
  for (const ScheduleKind kind : {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe}) {
    for (const int64_t m : {1, 4, 9}) {
      PipelineSchedule schedule = ScheduleFor(kind, 3, m);
      SetStageGraph({{}, {}, {0, 1}}, &schedule);
      const SchedulePlay play = PlaySchedule(schedule, EvenCosts(schedule));
      EXPECT_EQ(play.span, 3 * (m + 2 - 1)) << "as a chain of two stages";
      ASSERT_EQ(play.stages.size(), 3u);
      for (size_t i = 0; i < play.stages[0].size(); ++i)
        EXPECT_EQ(play.stages[0][i].begin, play.stages[1][i].begin);
    }
  }
}

}  // namespace
}  // namespace weir::compiler
