#include "compiler/rhythm/solve_rhythm.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/rates/graph_testing.h"
#include "compiler/rhythm/play_stations.h"
#include "compiler/testing/small_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kUnitNs = 1'000'000;

// A forward pass of a layer takes a unit and its backward pass two. All else takes a nanosecond.
class LayerCosts : public CostModel {
 public:
  int64_t KernelNs(const KernelUse& kernel) const override {
    return kernel.op == "relu" ? kUnitNs : kernel.op == "relu_grad" ? 2 * kUnitNs : 0;
  }
  int64_t ActNs() const override { return 1; }
  int64_t LatencyNs(LinkLevel, int64_t) const override { return 1; }
  LinkLevel LevelBetween(RankId, RankId) const override { return LinkLevel::kWithinHost; }
};

std::unique_ptr<LogicalPlan> Compile(const proto::Job& job, const CostModel& costs) {
  CompileOptions options;
  options.costs = &costs;
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

// Returns a job of one layer for each stage.
proto::Job EvenPipeline(int stages, int micro_batches, weir::proto::Pipeline::ScheduleKind kind) {
  proto::Job job = SmallJob(absl::StrCat("pp=", stages), stages, micro_batches);
  job.mutable_pipeline()->set_schedule(kind);
  for (int s = 1; s < stages; ++s) job.mutable_pipeline()->add_cut(absl::StrCat("layers.", s));
  return job;
}

TEST(SolveRhythm, TheBubbleOfAnEvenPipelineIsTheClosedForm) {
  for (int p : {2, 3, 4}) {
    for (int m : {2, 4, 8}) {
      for (auto kind : {weir::proto::Pipeline::ONE_F_ONE_B, weir::proto::Pipeline::GPIPE}) {
        const auto plan = Compile(EvenPipeline(p, m, kind), LayerCosts());
        ASSERT_NE(plan, nullptr);
        EXPECT_NEAR(plan->predicted_bubble, (p - 1.0) / (m + p - 1.0), 1e-3)
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

TEST(SolveRhythm, AMicroBatchTakesTheLoadOfAStage) {
  for (int p : {1, 2, 4}) {
    proto::Job job = EvenPipeline(p, 8, weir::proto::Pipeline::ONE_F_ONE_B);
    job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
    const auto plan = Compile(job, LayerCosts());
    ASSERT_NE(plan, nullptr);
    EXPECT_NEAR(static_cast<double>(plan->rhythm.micro_batch_ns), 3.0 * kUnitNs, 1e-3 * kUnitNs);
    // The last micro-batch begins seven periods after the first, and goes through all stages.
    EXPECT_GE(plan->rhythm.iteration_ns, (7 * 3 + 3 * p) * kUnitNs);
  }
}

// Returns the start of act `k` of iteration `n`, by the formula of compiler/rates/start_times.h.
int64_t StartOf(const TimedGraph& graph, const StartTimes& times, ActorId actor, int64_t n,
                int64_t k) {
  const Timing& start = times.actors[actor];
  const int64_t chunks = graph.actors[actor].chunks;
  return n * times.iteration_ns + start.start_ns + k / chunks * start.micro_batch_stride_ns +
         k % chunks * start.chunk_stride_ns;
}

// Follows every token of a register through some iterations: no reader starts before the token is
// there, and no producer before its slot is free.
void FollowTokens(const TimedGraph& graph, const StartTimes& times,
                  const TimedGraph::Register& entry, int64_t slots) {
  constexpr int64_t kIterations = 3;
  struct Made {
    int64_t begins = 0, ends = 0;
  };
  const auto spans = [&](const TimedGraph::Port& port, const std::function<void(Made)>& take) {
    const TimedGraph::Actor& actor = graph.actors[port.actor];
    ASSERT_EQ(actor.acts % port.period, 0);
    for (int64_t n = 0; n < kIterations; ++n) {
      for (int64_t k = 0; k < actor.acts; k += port.period) {
        const Made made{StartOf(graph, times, port.actor, n, k),
                        StartOf(graph, times, port.actor, n, k + port.period - 1) + actor.time_ns};
        for (int64_t t = 0; t < port.tokens; ++t) take(made);
      }
    }
  };
  std::vector<Made> tokens(entry.initial_tokens, Made{std::numeric_limits<int64_t>::min() / 2,
                                                      std::numeric_limits<int64_t>::min() / 2});
  spans(entry.producer, [&](Made made) { tokens.push_back(made); });
  for (const TimedGraph::Port& port : entry.consumers) {
    std::vector<Made> reads;
    spans(port, [&](Made read) { reads.push_back(read); });
    for (size_t t = 0; t < std::min(tokens.size(), reads.size()); ++t) {
      EXPECT_GE(reads[t].begins, tokens[t].ends + entry.latency_ns)
          << entry.name << ": token " << t << " is read too early";
      const size_t next = t + slots;
      if (next < tokens.size()) {
        EXPECT_GE(tokens[next].begins, reads[t].ends + entry.latency_ns)
            << entry.name << ": token " << next << " is made too early for " << slots << " slots";
      }
    }
  }
}

TEST(SolveStations, NoActStartsBeforeWhatItNeedsHasEnded) {
  for (const char* mesh : {"", "dp=3", "tp=2", "pp=2", "pp=3,dp=2", "pp=2,dp=2,tp=2"}) {
    for (auto registers : {proto::Runtime::SCHEDULE, proto::Runtime::SOLVED}) {
      for (int zero_stage : {0, 3}) {
        SCOPED_TRACE(absl::StrCat(mesh, ", ", proto::Runtime::Registers_Name(registers), ", ZeRO ",
                                  zero_stage));
        proto::Job job = SmallJob(mesh, 3, 3);
        job.mutable_runtime()->set_registers(registers);
        job.mutable_runtime()->set_chunk_bytes_max(64);
        job.mutable_training()->set_zero_stage(zero_stage);
        const auto plan = Compile(job, PeakCosts());
        ASSERT_NE(plan, nullptr);
        absl::StatusOr<StationGraph> graph = BuildStationGraph(*plan, PeakCosts());
        ASSERT_TRUE(graph.ok()) << graph.status();
        absl::StatusOr<RegisterSolution> solution = SolveStations(*plan, *graph);
        ASSERT_TRUE(solution.ok()) << solution.status();
        for (RegisterId r : graph->timed.registers.ids()) {
          const TimedGraph::Register& entry = graph->timed.registers[r];
          if (entry.slots > 0) {
            EXPECT_EQ(solution->slots[r], entry.slots) << "given slots stand";
          }
          FollowTokens(graph->timed, solution->times, entry, solution->slots[r]);
        }
      }
    }
  }
}

// A station has the time of its slowest rank that the solve looks at, and every rank of a stage has
// its actors among the stations.
TEST(BuildStationGraph, HasAStationForEveryActorOfEveryRank) {
  const auto plan = Compile(SmallJob("pp=2,dp=3", 3, 2), PeakCosts());
  ASSERT_NE(plan, nullptr);
  absl::StatusOr<StationGraph> graph = BuildStationGraph(*plan, PeakCosts());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(std::is_sorted(graph->stations.begin(), graph->stations.end()));
  EXPECT_EQ(std::adjacent_find(graph->stations.begin(), graph->stations.end()),
            graph->stations.end());
  for (const StageShape& shape : plan->stages) {
    for (const RankActor& actor : shape.graph.actors) {
      const auto at =
          std::lower_bound(graph->stations.begin(), graph->stations.end(), actor.station);
      ASSERT_TRUE(at != graph->stations.end() && *at == actor.station) << actor.name;
      const ActorId id(static_cast<int>(at - graph->stations.begin()));
      const TimedGraph::Actor& timed = graph->timed.actors[id];
      EXPECT_EQ(timed.device, shape.graph.stage);
      EXPECT_EQ(timed.acts, actor.acts_per_step);
    }
  }
}

TEST(RegisterBytes, LieWithTheReader) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 1, 1, 1, 0), b = maker.Actor("b", 1, 1, 1, 1);
  maker.Register("within", {a}, {{a}}, {.bytes = 10});
  maker.Register("across", {a}, {{b}}, {.bytes = 100});
  EXPECT_EQ(RegisterBytes(maker.graph, {2, 3}), (std::map<int, int64_t>{{0, 20}, {1, 300}}));
}

TEST(SolveStations, UnderALimitTheRegistersOfEveryDeviceFit) {
  proto::Job job = EvenPipeline(4, 8, weir::proto::Pipeline::ONE_F_ONE_B);
  job.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
  const auto plan = Compile(job, LayerCosts());
  ASSERT_NE(plan, nullptr);
  absl::StatusOr<StationGraph> graph = BuildStationGraph(*plan, LayerCosts());
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto fullest = [&](const RegisterSolution& solution) {
    int64_t most = 0;
    for (const auto& [device, bytes] : RegisterBytes(graph->timed, solution.slots))
      most = std::max(most, bytes);
    return most;
  };
  const absl::StatusOr<RegisterSolution> free = SolveStations(*plan, *graph);
  ASSERT_TRUE(free.ok()) << free.status();
  plan->settings.runtime.register_bytes_max = fullest(*free) - 1;
  const absl::StatusOr<RegisterSolution> bound = SolveStations(*plan, *graph);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_LT(fullest(*bound), fullest(*free));
  EXPECT_GT(bound->micro_batch_ns, free->micro_batch_ns) << "less memory costs time";
  plan->settings.runtime.register_bytes_max = 1;
  const absl::Status none = SolveStations(*plan, *graph).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.message()), HasSubstr("W0495 at runtime.register_bytes_max"));
}

// Stage s has a forward and a backward actor. `update` reads the last backward pass of a step, and
// the first forward pass of the next step reads its result.
StationGraph PipelineByHand(const PipelineSchedule& schedule,
                            IdVector<RegisterId, int64_t>* slots) {
  const int64_t p = schedule.num_stages, m = schedule.micro_batches;
  GraphMaker maker;
  StationGraph graph;
  std::vector<ActorId> forward, backward;  // by stage
  for (int64_t s = 0; s < p; ++s) {
    forward.push_back(maker.Actor("forward", m, kUnitNs, 1, static_cast<int>(s)));
    backward.push_back(maker.Actor("backward", m, 2 * kUnitNs, 1, static_cast<int>(s)));
    maker.graph.actors[forward.back()].priority = 2;
    maker.graph.actors[backward.back()].priority = 1;
    graph.passes.push_back({PipelinePass::kForward, s, {}});
    graph.passes.push_back({PipelinePass::kBackward, s, {}});
    maker.Register("stash", {forward[s]}, {{backward[s]}}, {.slots = schedule.in_flight[s]});
  }
  for (int64_t s = 0; s + 1 < p; ++s) {
    maker.Register("down", {forward[s]}, {{forward[s + 1]}}, {.slots = 2});
    maker.Register("up", {backward[s + 1]}, {{backward[s]}}, {.slots = 2});
  }
  const ActorId update = maker.Actor("update", 1, 1);
  graph.passes.push_back({});
  maker.Register("gradient", {backward[0], m, 1}, {{update}});
  maker.Register("weight", {update}, {{forward[0], m, 1}}, {.initial_tokens = 1});
  graph.timed = maker.graph;
  for (const TimedGraph::Register& entry : graph.timed.registers) slots->push_back(entry.slots);
  return graph;
}

TEST(PlayStations, AStepByHandHasTheBubbleOfTheClosedForm) {
  for (int64_t p : {2, 3, 5}) {
    for (int64_t m : {2, 4, 10}) {
      const PipelineSchedule schedule = ScheduleOf({}, p, m);
      IdVector<RegisterId, int64_t> slots;
      const StationGraph graph = PipelineByHand(schedule, &slots);
      const StationPlay play = PlayStations(schedule, graph, slots);
      EXPECT_EQ(play.transfers, Transfers::kCounted);
      EXPECT_EQ(play.play.span, 3 * kUnitNs * (m + p - 1)) << p << " x " << m;
      EXPECT_NEAR(play.play.bubble, static_cast<double>(p - 1) / static_cast<double>(m + p - 1),
                  1e-9);
      for (const auto& stage : play.play.stages)
        EXPECT_EQ(static_cast<int64_t>(stage.size()), 2 * m) << "the acts of one step";
    }
  }
}

TEST(PlayStations, AMillionActsArePlayedPartByPart) {
  const PipelineSchedule schedule = ScheduleOf({}, 4, 20'000);
  IdVector<RegisterId, int64_t> slots;
  const StationGraph graph = PipelineByHand(schedule, &slots);
  const StationPlay play = PlayStations(schedule, graph, slots);
  EXPECT_EQ(play.transfers, Transfers::kNotCounted);
  EXPECT_EQ(play.play.span, 3 * kUnitNs * (20'000 + 4 - 1));
}

}  // namespace
}  // namespace weir::compiler
