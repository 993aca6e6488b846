#include "compiler/ir/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr PipelinePass kForward = PipelinePass::kForward, kBackward = PipelinePass::kBackward,
                       kWeights = PipelinePass::kWeightGradient;
constexpr ScheduleKind kKinds[] = {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe,
                                   ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble};

PipelineSchedule ScheduleFor(ScheduleKind kind, int64_t stages, int64_t micro_batches,
                             int64_t virtual_stages = 0) {
  return ScheduleOf({kind, virtual_stages, {}}, stages, micro_batches);
}

// The place of an act among the acts of its stage, as the schedule ranks acts of equal priority.
int64_t OrderOf(const PipelineSchedule& schedule, PipelinePass pass, int64_t part, int64_t k) {
  return schedule.PrecedenceOf(pass, part).At(k);
}

using Act = std::tuple<PipelinePass, int64_t, int64_t>;  // pass, part, micro-batch

std::string TextOf(const std::vector<Act>& acts) {
  std::string text;
  for (const auto& [pass, part, k] : acts)
    absl::StrAppend(&text, pass == kForward ? "F" : "B", part, ".", k, " ");
  return text;
}

// Interleaved 1F1B as Narayanan and others describe it ("Efficient large-scale language model
// training on GPU clusters using Megatron-LM", SC 2021, section 2.2): micro-batches go through the
// parts of a stage in groups of `stages`, backward passes through the parts in the other order,
// and a stage alternates after 2 (stages - s - 1) + (v - 1) stages forward acts.
std::vector<Act> InterleavedOrder(int64_t stages, int64_t v, int64_t micro_batches, int64_t s) {
  std::vector<Act> forward, backward;
  for (int64_t group = 0; group < micro_batches; group += stages) {
    for (int64_t chunk = 0; chunk < v; ++chunk) {
      for (int64_t k = group; k < group + stages; ++k) {
        forward.push_back({kForward, chunk * stages + s, k});
        backward.push_back({kBackward, (v - 1 - chunk) * stages + s, k});
      }
    }
  }
  const auto warmup = std::min<size_t>(forward.size(), 2 * (stages - s - 1) + (v - 1) * stages);
  std::vector<Act> order(forward.begin(), forward.begin() + static_cast<int64_t>(warmup));
  for (size_t n = 0; n < backward.size(); ++n) {
    if (warmup + n < forward.size()) order.push_back(forward[warmup + n]);
    order.push_back(backward[n]);
  }
  return order;
}

TEST(PipelineSchedule, TheInterleavedOrderIsThatOfThePaper) {
  for (int64_t stages : {2, 3, 4}) {
    for (int64_t v : {1, 2, 3}) {
      for (int64_t groups : {1, 2, 3}) {
        const int64_t micro_batches = groups * stages;
        const PipelineSchedule schedule =
            ScheduleFor(ScheduleKind::kInterleaved, stages, micro_batches, v);
        for (int64_t s = 0; s < stages; ++s) {
          // With one part a stage the paper's warm-up is that of plain 1F1B.
          if (v == 1) continue;
          std::vector<Act> acts = InterleavedOrder(stages, v, micro_batches, s);
          const std::string expected = TextOf(acts);
          std::set<int64_t> places;
          for (const auto& [pass, part, k] : acts) places.insert(OrderOf(schedule, pass, part, k));
          EXPECT_EQ(places.size(), acts.size()) << "two acts of one stage have the same place";
          std::sort(acts.begin(), acts.end(), [&](const Act& a, const Act& b) {
            return std::apply([&](auto... x) { return OrderOf(schedule, x...); }, a) <
                   std::apply([&](auto... x) { return OrderOf(schedule, x...); }, b);
          });
          EXPECT_EQ(TextOf(acts), expected)
              << stages << " stages of " << v << " parts, stage " << s;
        }
      }
    }
  }
}

TEST(PipelineSchedule, InterleavedPartsHoldWhatThePapersOrderHolds) {
  for (int64_t stages : {2, 3, 4}) {
    for (int64_t v : {2, 3}) {
      for (int64_t groups : {1, 2, 4}) {
        const int64_t micro_batches = groups * stages;
        const PipelineSchedule schedule =
            ScheduleFor(ScheduleKind::kInterleaved, stages, micro_batches, v);
        ASSERT_EQ(static_cast<int64_t>(schedule.in_flight.size()), stages * v);
        for (int64_t s = 0; s < stages; ++s) {
          std::map<int64_t, int64_t> now, most;
          for (const auto& [pass, part, k] : InterleavedOrder(stages, v, micro_batches, s)) {
            now[part] += pass == kForward ? 1 : -1;
            most[part] = std::max(most[part], now[part]);
          }
          for (const auto& [part, count] : most)
            EXPECT_EQ(schedule.in_flight[part], count) << "part " << part << " of " << stages * v;
        }
      }
    }
  }
}

TEST(PipelineSchedule, TheOtherKindsHoldWhatTheirFormulasSay) {
  for (int64_t stages = 2; stages <= 6; ++stages) {
    for (int64_t m = 1; m <= 12; ++m) {
      for (int64_t s = 0; s < stages; ++s) {
        const int64_t from_the_end = stages - s;
        EXPECT_EQ(ScheduleFor(ScheduleKind::kOneFOneB, stages, m).in_flight[s],
                  std::min(from_the_end, m));
        EXPECT_EQ(ScheduleFor(ScheduleKind::kGpipe, stages, m).in_flight[s], m);
        EXPECT_EQ(ScheduleFor(ScheduleKind::kZeroBubble, stages, m).in_flight[s],
                  std::min({stages, 2 * from_the_end - 1, m}));
      }
    }
  }
}

// A zero-bubble stage sends stages - s - 1 micro-batches forward and then takes turns.
TEST(PipelineSchedule, AZeroBubbleStageAlternatesAfterItsLead) {
  constexpr int64_t kStages = 4, kMicroBatches = 6;
  const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kZeroBubble, kStages, kMicroBatches);
  for (int64_t s = 0; s < kStages; ++s) {
    std::vector<std::pair<int64_t, std::string>> acts;
    for (int64_t k = 0; k < kMicroBatches; ++k) {
      acts.push_back({OrderOf(schedule, kForward, s, k), absl::StrCat("F", k)});
      acts.push_back({OrderOf(schedule, kBackward, s, k), absl::StrCat("B", k)});
    }
    std::sort(acts.begin(), acts.end());
    std::vector<std::string> expected, found;
    for (int64_t k = 0; k < kMicroBatches; ++k) {
      for (int64_t f = k == 0 ? 0 : k + kStages - s - 1;
           f <= k + kStages - s - 1 && f < kMicroBatches; ++f)
        expected.push_back(absl::StrCat("F", f));
      expected.push_back(absl::StrCat("B", k));
    }
    for (const auto& [place, name] : acts) found.push_back(name);
    EXPECT_EQ(found, expected) << "stage " << s;
  }
}

TEST(PipelineSchedule, WithoutPrecedenceMicroBatchesGoByTheirNumberAlone) {
  EXPECT_TRUE(ScheduleFor(ScheduleKind::kOneFOneB, 4, 8).PrecedenceOf(kForward, 1).always_zero());
  const PipelineSchedule gpipe = ScheduleFor(ScheduleKind::kGpipe, 4, 8);
  for (int64_t k = 1; k < 8; ++k) {
    EXPECT_GT(OrderOf(gpipe, kForward, 1, k), OrderOf(gpipe, kForward, 1, k - 1));
    EXPECT_EQ(OrderOf(gpipe, kForward, 1, k), OrderOf(gpipe, kBackward, 3, k));
  }
}

TEST(PipelineSchedule, PartsLieOnStagesRoundAndRound) {
  const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kInterleaved, 3, 6, 2);
  std::vector<int64_t> stages;
  for (int64_t part = 0; part < schedule.num_parts(); ++part)
    stages.push_back(schedule.StageOf(part));
  EXPECT_THAT(stages, ::testing::ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(PipelineSchedule, AValueForTheBackwardPassIsKeptAsLongAsItsMicroBatchIsUnderWay) {
  for (auto kind : kKinds) {
    const PipelineSchedule schedule = ScheduleFor(kind, 4, 8);
    for (int64_t part = 0; part < schedule.num_parts(); ++part) {
      EXPECT_EQ(schedule.Kept(kForward, part, kBackward, part), schedule.in_flight[part]);
      EXPECT_EQ(schedule.Kept(kForward, part, kForward, part), 1);
    }
  }
}

// The memory of a zero-bubble stage does not depend on the stage: what waits for weight gradients
// replaces what waits for the backward pass.
TEST(PipelineSchedule, WithZeroBubbleAllStagesKeepTheSame) {
  for (int64_t stages : {2, 3, 5}) {
    const PipelineSchedule schedule = ScheduleFor(ScheduleKind::kZeroBubble, stages, 20);
    for (int64_t s = 0; s < stages; ++s) {
      EXPECT_EQ(schedule.Kept(kForward, s, kWeights, s), stages);
      EXPECT_EQ(schedule.Kept(kForward, s, kBackward, s) + schedule.Kept(kBackward, s, kWeights, s),
                stages + 1)
          << "stage " << s;
    }
  }
}

TEST(PipelineSchedule, NoMoreIsKeptThanThereAreMicroBatches) {
  for (auto kind : kKinds) {
    for (int64_t m : {1, 2, 3}) {
      const PipelineSchedule schedule = ScheduleFor(kind, 4, m);
      for (int64_t part = 0; part < schedule.num_parts(); ++part) {
        EXPECT_LE(schedule.in_flight[part], m) << Name(kind);
        for (PipelinePass made : {kForward, kBackward}) {
          for (PipelinePass read : {kForward, kBackward, kWeights}) {
            if (read < made) continue;
            EXPECT_LE(schedule.Kept(made, part, read, part), m) << Name(kind);
            EXPECT_GE(schedule.Kept(made, part, read, part), 1) << Name(kind);
          }
        }
      }
    }
  }
}

TEST(PipelineSchedule, ForwardGoesBeforeBackwardUnlessPrecedenceDecidesAndWeightsComeLast) {
  constexpr auto kBegins = PipelineSchedule::Begin::kBegins;
  constexpr auto kGoesOn = PipelineSchedule::Begin::kGoesOn;
  for (auto kind : kKinds) {
    const PipelineSchedule schedule = ScheduleFor(kind, 4, 8);
    const int forward = schedule.PriorityOf(kForward, kBegins),
              backward = schedule.PriorityOf(kBackward, kBegins);
    const bool by_turns = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubble;
    EXPECT_EQ(forward == backward, by_turns) << Name(kind);
    EXPECT_GE(forward, backward) << Name(kind);
    EXPECT_LT(schedule.PriorityOf(kWeights, kBegins), backward) << Name(kind);
    EXPECT_GT(schedule.PriorityOf(kForward, kGoesOn), forward) << Name(kind);
    EXPECT_GT(schedule.PriorityOf(kBackward, kGoesOn), backward) << Name(kind);
  }
  const PipelineSchedule alone = ScheduleFor(ScheduleKind::kOneFOneB, 1, 8);
  EXPECT_EQ(alone.PriorityOf(kForward, kGoesOn), alone.PriorityOf(kForward, kBegins));
}

TEST(PipelineSchedule, OneStageNeedsNoScheduleWhateverTheJobSays) {
  for (auto kind : kKinds) {
    const PipelineSchedule schedule = ScheduleFor(kind, 1, 8);
    EXPECT_EQ(schedule.kind, ScheduleKind::kOneFOneB);
    EXPECT_EQ(schedule.num_parts(), 1);
    EXPECT_FALSE(schedule.splits_backward());
    EXPECT_FALSE(schedule.gates_backward());
  }
}

TEST(PipelineSchedule, OnlyInterleavedHasPartsAndTwoByDefault) {
  EXPECT_EQ(ScheduleFor(ScheduleKind::kInterleaved, 4, 8).virtual_stages, 2);
  EXPECT_EQ(ScheduleFor(ScheduleKind::kInterleaved, 4, 8, 3).virtual_stages, 3);
  EXPECT_EQ(ScheduleFor(ScheduleKind::kGpipe, 4, 8, 1).virtual_stages, 1);
}

// The share of idle time by the area of the chart: p (m v + p - 1) units a stage and pass, of which
// every stage works m v.
TEST(PipelineSchedule, TheBubbleOfEvenPartsIsTheIdleAreaOfTheChart) {
  for (double p : {2.0, 4.0}) {
    for (double m : {4.0, 16.0}) {
      const auto idle = [&](double v) { return 1 - p * m * v / (p * (m * v + p - 1)); };
      const auto stages = static_cast<int64_t>(p), micro_batches = static_cast<int64_t>(m);
      EXPECT_NEAR(ScheduleFor(ScheduleKind::kOneFOneB, stages, micro_batches).BubbleFormula(2, 0),
                  idle(1), 1e-12);
      EXPECT_NEAR(
          ScheduleFor(ScheduleKind::kInterleaved, stages, micro_batches, 3).BubbleFormula(2, 0),
          idle(3), 1e-12);
      // With equal thirds, weight gradients fill all but p - 1 units of a step of 3 m.
      EXPECT_NEAR(ScheduleFor(ScheduleKind::kZeroBubble, stages, micro_batches).BubbleFormula(1, 1),
                  1 - 3 * m / (3 * m + p - 1), 1e-12);
    }
  }
}

// A graph that is a chain gives what the chain gives, in whatever order its stages are numbered.
TEST(PipelineSchedule, AGraphThatIsAChainCountsAsOne) {
  for (const ScheduleKind kind :
       {ScheduleKind::kOneFOneB, ScheduleKind::kGpipe, ScheduleKind::kZeroBubble}) {
    for (const int64_t m : {1, 3, 8}) {
      const PipelineSchedule chain = ScheduleFor(kind, 4, m);
      const std::vector<int64_t> stage_of = {2, 0, 3, 1};  // by place in the chain
      std::vector<std::vector<int64_t>> before(4);
      for (int i = 1; i < 4; ++i) before[stage_of[i]] = {stage_of[i - 1]};
      PipelineSchedule graph = chain;
      SetStageGraph(before, &graph);
      EXPECT_TRUE(graph.is_chain());
      EXPECT_EQ(graph.BubbleFormula(1, 1), chain.BubbleFormula(1, 1));
      for (int i = 0; i < 4; ++i) {
        const int64_t s = stage_of[i];
        EXPECT_EQ(graph.in_flight[s], chain.in_flight[i]);
        EXPECT_EQ(graph.ReadsStages(s), i > 0);
        for (const PipelinePass pass :
             {PipelinePass::kForward, PipelinePass::kBackward, PipelinePass::kWeightGradient}) {
          EXPECT_EQ(graph.PrecedenceOf(pass, s).At(2), chain.PrecedenceOf(pass, i).At(2));
          EXPECT_EQ(graph.Kept(PipelinePass::kForward, s, pass, s),
                    chain.Kept(PipelinePass::kForward, i, pass, i));
        }
      }
    }
  }
}

TEST(PipelineSchedule, StagesSideBySideHoldWhatTheirWayNeeds) {
  PipelineSchedule schedule = ScheduleFor(ScheduleKind::kZeroBubble, 3, 8);
  SetStageGraph({{}, {}, {0, 1}}, &schedule);
  EXPECT_FALSE(schedule.is_chain());
  EXPECT_EQ(schedule.stages_in_a_row(), 2);
  EXPECT_EQ(schedule.in_flight, std::vector<int64_t>({2, 2, 1})) << "min(2, 2 n + 1)";
  for (const int64_t s : {0, 1, 2}) {
    EXPECT_EQ(schedule.Kept(PipelinePass::kForward, s, PipelinePass::kWeightGradient, s), 2);
  }
}

}  // namespace
}  // namespace weir::compiler
