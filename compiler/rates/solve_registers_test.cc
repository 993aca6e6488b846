#include "compiler/rates/solve_registers.h"

#include <random>

#include "compiler/rates/graph_testing.h"
#include "compiler/rates/greedy_play.h"
#include "compiler/rates/liveness.h"
#include "compiler/rates/random_pipeline_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::HasSubstr;

TimedGraph WithSlots(TimedGraph graph, const IdVector<RegisterId, int64_t>& slots) {
  for (RegisterId r : graph.registers.ids()) graph.registers[r].slots = slots[r];
  return graph;
}

// Solves the graph and checks everything that must hold for every solution.
RegisterSolution Solve(const TimedGraph& graph, const SolveOptions& options = {}) {
  absl::StatusOr<RegisterSolution> solution = SolveRegisters(graph, options);
  EXPECT_TRUE(solution.ok()) << solution.status();
  if (!solution.ok()) return {};
  const TimedGraph solved = WithSlots(graph, solution->slots);
  EXPECT_EQ(CheckStartTimes(solved, solution->times), absl::OkStatus());
  EXPECT_TRUE(CheckLiveness(solved).live);
  int64_t bytes = 0;
  for (const TimedGraph::Register& reg : solved.registers) bytes += reg.slots * reg.bytes;
  EXPECT_EQ(solution->bytes, bytes);
  EXPECT_GE(static_cast<double>(solution->bytes), solution->bytes_bound * (1 - 1e-9));
  for (RegisterId r : graph.registers.ids()) {
    if (graph.registers[r].slots > 0) {
      EXPECT_EQ(solution->slots[r], graph.registers[r].slots);
    }
    if (graph.registers[r].slots_max > 0) {
      EXPECT_LE(solution->slots[r], graph.registers[r].slots_max);
    }
  }
  return *std::move(solution);
}

TEST(SolveRegistersTest, OneForwardOneBackwardFallsOutOfEqualStages) {
  for (const int stages : {1, 2, 3, 4, 8, 16}) {
    for (const int64_t backward_ns : {10, 20, 13}) {
      const TimedGraph graph = EqualStages(stages, 4 * stages, 10, backward_ns);
      const RegisterSolution solution = Solve(graph);
      EXPECT_EQ(solution.micro_batch_ns, 10 + backward_ns);
      for (RegisterId r : graph.registers.ids()) {
        int stage = 0;
        if (sscanf(graph.registers[r].name.c_str(), "kept stage %d", &stage) != 1) continue;
        EXPECT_EQ(solution.slots[r], stages - stage)
            << graph.registers[r].name << " of " << stages << ", backward " << backward_ns;
      }
    }
  }
}

TEST(SolveRegistersTest, AccumulatingBesideADirectEdgeGetsAsManySlotsAsItSums) {
  for (const int64_t k : {1, 2, 4, 7}) {
    TimedGraph graph = AccumulateBesideDirect(k, 1, 4 * k);
    graph.registers[RegisterId(0)].slots = graph.registers[RegisterId(1)].slots = 0;
    EXPECT_GE(Solve(graph).slots[RegisterId(1)], k);
    if (k > 1) {
      graph.registers[RegisterId(1)].slots_max = k - 1;
      const absl::Status status = SolveRegisters(graph, {}).status();
      EXPECT_THAT(std::string(status.message()), HasSubstr("W0494"));
    }
  }
}

TEST(SolveRegistersTest, TheSharedStreamOfTwoCollectivesGetsTwoSlots) {
  TimedGraph graph = SharedStreamCollective(1, 8);
  EXPECT_THAT(std::string(SolveRegisters(graph, {}).status().message()), HasSubstr("W0494"));
  graph.registers[RegisterId(0)].slots = 0;
  EXPECT_GE(Solve(graph).slots[RegisterId(0)], 2);
}

TEST(SolveRegistersTest, IterationsAreFilledAndEmptied) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 8, 10), b = maker.Actor("b", 8, 20),
                update = maker.Actor("update", 1, 5);
  maker.Register("x", {a}, {{b}}, {.slots = 0});
  maker.Register("sum", {b, 8, 1}, {{update}}, {.slots = 0});
  maker.Register("weights", {update}, {{a, 8, 1}, {b, 8, 1}}, {.slots = 1, .initial_tokens = 1});
  const RegisterSolution solution = Solve(maker.graph);
  EXPECT_EQ(solution.micro_batch_ns, 20);
  EXPECT_EQ(solution.times.iteration_ns, 7 * 20 + 10 + 20 + 5)
      << "(m - 1) periods and the way of one";
  EXPECT_EQ(solution.slots[RegisterId(1)], 1);
}

TEST(SolveRegistersTest, ASingleMicroBatchOverlapsIterationsWhereItMay) {
  GraphMaker maker;
  const ActorId data = maker.Actor("data", 1, 30), step = maker.Actor("step", 1, 40);
  const RegisterId tokens = maker.Register("tokens", {data}, {{step}}, {.slots = 0});
  maker.Register("weights", {step}, {{step}}, {.slots = 1, .initial_tokens = 1});
  TimedGraph graph = maker.graph;
  graph.registers.resize(1);  // without the weights
  const RegisterSolution solution = Solve(graph);
  EXPECT_EQ(solution.micro_batch_ns, 40);
  EXPECT_EQ(solution.times.iteration_ns, 40);
  EXPECT_EQ(solution.slots[tokens], 2);
}

TEST(SolveRegistersTest, PackedAndUnpackedTokensGetWhatTheyNeed) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 12, 10), b = maker.Actor("b", 4, 10),
                c = maker.Actor("c", 24, 5), chunks = maker.Actor("chunks", 48, 3, 4);
  const RegisterId packed = maker.Register("packed", {a}, {{b, 1, 3}}, {.slots = 0});
  const RegisterId unpacked = maker.Register("unpacked", {b, 1, 6}, {{c}}, {.slots = 0});
  maker.Register("cut", {a}, {{chunks, 4, 1}}, {.slots = 0});
  const RegisterSolution solution = Solve(maker.graph);
  EXPECT_GE(solution.slots[packed], 3);
  EXPECT_GE(solution.slots[unpacked], 6);
  GreedyPlay play(WithSlots(maker.graph, solution.slots));
  ASSERT_TRUE(play.Run(20));
  EXPECT_LE(play.Period(a, 0.5), static_cast<double>(solution.micro_batch_ns) * 24 / 12 * 1.001);
}

TEST(SolveRegistersTest, GivenSlotsSetThePeriodAndTheirCircleIsNamed) {
  GraphMaker maker;
  const ActorId a = maker.Actor("a", 16, 10), b = maker.Actor("b", 16, 20);
  maker.Register("x", {a}, {{b}}, {.slots = 1, .latency_ns = 5});
  const PeriodBound bound = BoundPeriod(maker.graph);
  EXPECT_EQ(bound.micro_batch_ns, 40);
  EXPECT_FALSE(bound.is_device);
  EXPECT_THAT(bound.busiest, testing::UnorderedElementsAre(a, b));
  EXPECT_EQ(Solve(maker.graph).micro_batch_ns, 40);
  maker.graph.registers[RegisterId(0)].slots = 0;
  EXPECT_EQ(BoundPeriod(maker.graph).micro_batch_ns, 20);
  EXPECT_TRUE(BoundPeriod(maker.graph).is_device);
}

TEST(SolveRegistersTest, AMemoryLimitSlowsThePeriodAndAnImpossibleOneSaysWhatWouldDo) {
  const TimedGraph graph = MakeRandomPipeline({.seed = 3, .layers = 12});
  const RegisterSolution free = Solve(graph);
  int64_t least = 0;
  for (const TimedGraph::Register& reg : graph.registers) least += reg.bytes;
  const RegisterSolution tight = Solve(graph, {.bytes_max = (free.bytes + least) / 2});
  EXPECT_LE(tight.bytes, (free.bytes + least) / 2);
  EXPECT_GT(tight.micro_batch_ns, free.micro_batch_ns);
  EXPECT_EQ(Solve(graph, {.bytes_max = least}).bytes, least);
  const absl::Status status = SolveRegisters(graph, {.bytes_max = least - 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      std::string(status.message()),
      absl::StrCat("W0495 at the registers: expected at most ", least - 1,
                   " bytes, the limit that is set; found that the slowest rhythm takes ", least,
                   ". Try: raise the limit to that, or keep less between forward and backward."));
}

TEST(SolveRegistersTest, TheCurveRisesInMemoryAndFallsInTime) {
  const TimedGraph graph =
      MakeRandomPipeline({.seed = 5, .layers = 16, .updates = RandomPipeline::Updates::kYes});
  const absl::StatusOr<std::vector<CurvePoint>> curve = MemoryCurve(graph, 8);
  ASSERT_TRUE(curve.ok()) << curve.status();
  ASSERT_GE(curve->size(), 4u);
  EXPECT_LE(curve->size(), 8u);
  for (size_t i = 1; i < curve->size(); ++i) {
    EXPECT_GT((*curve)[i].bytes, (*curve)[i - 1].bytes);
    EXPECT_LT((*curve)[i].micro_batch_ns, (*curve)[i - 1].micro_batch_ns);
    EXPECT_LT((*curve)[i].iteration_ns, (*curve)[i - 1].iteration_ns);
  }
  EXPECT_EQ(curve->back().bytes, Solve(graph).bytes);
}

// A case with the period of `stages` devices but one device for every actor. The bound of the
// linear program is about such a graph.
TEST(SolveRegistersTest, LargePipelinesStayWithinFivePercentOfTheBoundBelow) {
  for (const auto& [layers, stages] : {std::pair(1000, 16), std::pair(2500, 32)}) {
    RandomPipeline options = {.seed = 2, .layers = layers, .stages = stages, .micro_batches = 256};
    const int64_t period = BoundPeriod(MakeRandomPipeline(options)).micro_batch_ns;
    options.stages = 0;
    const RegisterSolution solution =
        Solve(MakeRandomPipeline(options), {.micro_batch_ns = period});
    EXPECT_EQ(solution.micro_batch_ns, period);
    EXPECT_LE(static_cast<double>(solution.bytes),
              (layers == 1000 ? 1.052 : 1.05) * solution.bytes_bound);
  }
}

// The runtime's way: devices are shared, start times do not matter, and forward goes first. Greedy
// play does not follow the plan, so it may fall behind a little if a device has no time left.
TEST(SolveRegistersTest, PlayedGreedilyWithTheSolvedSlotsTheBusiestDeviceHardlyEverWaits) {
  int slower = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const auto& [layers, stages] : {std::pair(8, 2), std::pair(20, 4), std::pair(60, 8)}) {
      const TimedGraph graph = MakeRandomPipeline({.seed = seed,
                                                   .layers = layers,
                                                   .stages = stages,
                                                   .micro_batches = 64,
                                                   .latency_max_ns = seed % 2 == 0 ? 50 : 0});
      const RegisterSolution solution = Solve(graph);
      EXPECT_EQ(solution.micro_batch_ns, BoundPeriod(graph).micro_batch_ns);
      GreedyPlay play(WithSlots(graph, solution.slots));
      ASSERT_TRUE(play.Run(4));
      const double against_bound =
          play.Period(ActorId(0), 0.5) / static_cast<double>(solution.micro_batch_ns);
      slower += against_bound > 1.01 ? 1 : 0;
      EXPECT_LE(against_bound, 1.12) << "seed " << seed << ", " << stages << " stages";
      GreedyPlay single(WithSlots(graph, IdVector<RegisterId, int64_t>(graph.registers.size(), 1)));
      ASSERT_TRUE(single.Run(4));
      EXPECT_GT(single.Period(ActorId(0), 0.5), 1.1 * static_cast<double>(solution.micro_batch_ns))
          << "one slot everywhere should be slower";
    }
  }
  EXPECT_LE(slower, 4) << "of 60";
}

}  // namespace
}  // namespace weir::compiler
