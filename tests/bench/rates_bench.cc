// Measures the cost of the mathematics of time: the slot solve, the check of start times and the
// play of an iteration, for pipelines of up to 20,000 actors. It also measures how near the solved
// memory is to the lower bound.
//   tools/bench rates
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/rates/greedy_play.h"
#include "compiler/rates/play.h"
#include "compiler/rates/random_pipeline_testing.h"
#include "compiler/rates/solve_registers.h"
#include "compiler/rates/start_times.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

using compiler::CheckStartTimes;
using compiler::GreedyPlay;
using compiler::MakeRandomPipeline;
using compiler::Play;
using compiler::RandomPipeline;
using compiler::RegisterSolution;
using compiler::SolveRegisters;
using compiler::TimedGraph;

TimedGraph WithSlots(TimedGraph graph, const IdVector<RegisterId, int64_t>& slots) {
  for (RegisterId r : graph.registers.ids()) graph.registers[r].slots = slots[r];
  return graph;
}

template <typename Call>
double CpuMs(Call call) {
  const double begin = ThreadCpuNs();
  call();
  return (ThreadCpuNs() - begin) * 1e-6;
}

struct Budgets {
  double solve_ms = 0;  // 0: none
  double check_ms = 0;
  double play_ms = 0;
};

void PrintTime(const std::string& what, const std::vector<double>& ms, double budget_ms,
               const std::string& note) {
  BenchRow row = {what, "ms", ms, "no budget", {1}, BenchRow::Better::kLower, std::nullopt, note};
  if (budget_ms > 0) {
    row.against = absl::StrCat("budget ", budget_ms, " ms");
    row.theirs = {budget_ms};
    row.limit = 1.0;
  }
  PrintRow(row);
}

void MeasureTimes(const BenchArgs& args, const RandomPipeline& options, const Budgets& budgets) {
  const TimedGraph graph = MakeRandomPipeline(options);
  const std::string name =
      absl::StrCat(graph.actors.size(), " actors on ", options.stages, " devices");
  std::vector<double> solve, check, play;
  int64_t acts = 0;
  for (const TimedGraph::Actor& actor : graph.actors) acts += actor.acts;
  for (int i = 0; i < args.Repeats(7); ++i) {
    RegisterSolution solution;
    solve.push_back(CpuMs([&] { solution = Must(SolveRegisters(graph, {})); }));
    const TimedGraph solved = WithSlots(graph, solution.slots);
    check.push_back(CpuMs([&] { Must(CheckStartTimes(solved, solution.times)); }));
    play.push_back(CpuMs([&] {
      if (!Play(solved).Run()) Must(absl::InternalError("a solved pipeline comes to rest"));
    }));
  }
  PrintTime(absl::StrCat(name, ": slots and start times"), solve, budgets.solve_ms, "CPU time");
  PrintTime(absl::StrCat(name, ": check of the start times"), check, budgets.check_ms, "CPU time");
  PrintTime(absl::StrCat(name, ": liveness, one iteration"), play, budgets.play_ms,
            absl::StrCat("CPU time, ", acts, " acts"));
}

// Measures the greedy play and the memory against their bounds, over random pipelines.
void MeasureQuality(const BenchArgs& args, int layers, int stages) {
  std::vector<double> period, memory, memory_alone;
  for (int seed = 1; seed <= args.Repeats(10); ++seed) {
    RandomPipeline options = {.seed = static_cast<uint64_t>(seed),
                              .layers = layers,
                              .stages = stages,
                              .micro_batches = 8 * stages};
    const TimedGraph graph = MakeRandomPipeline(options);
    const RegisterSolution solution = Must(SolveRegisters(graph, {}));
    GreedyPlay greedy(WithSlots(graph, solution.slots));
    if (!greedy.Run(4)) Must(absl::InternalError("a solved pipeline comes to rest"));
    period.push_back(greedy.Period(ActorId(0), 0.5) / static_cast<double>(solution.micro_batch_ns));
    memory.push_back(static_cast<double>(solution.bytes) / solution.bytes_bound);
    options.stages = 0;
    const RegisterSolution alone = Must(
        SolveRegisters(MakeRandomPipeline(options), {.micro_batch_ns = solution.micro_batch_ns}));
    memory_alone.push_back(static_cast<double>(alone.bytes) / alone.bytes_bound);
  }
  const std::string name = absl::StrCat(2 * layers, " actors on ", stages, " devices");
  PrintRow({absl::StrCat(name, ": period, played greedily"),
            "of the bound",
            period,
            "the busiest device's time",
            {1},
            BenchRow::Better::kLower,
            1.01,
            "random pipelines"});
  PrintRow({absl::StrCat(name, ": bytes of registers"),
            "of the bound",
            memory,
            "the LP's bound, which shares no device",
            {1},
            BenchRow::Better::kLower,
            std::nullopt,
            "what more there is keeps acts of one device apart"});
  PrintRow({absl::StrCat(name, ": bytes, a device for every actor"),
            "of the bound",
            memory_alone,
            "the LP's bound",
            {1},
            BenchRow::Better::kLower,
            layers >= 1000 ? std::optional<double>(1.05) : std::nullopt,
            "same period"});
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  if (args.extent == weir::bench::BenchArgs::Extent::kSmoke) {
    weir::bench::MeasureTimes(args, {.layers = 50, .stages = 4, .micro_batches = 8}, {});
    weir::bench::MeasureQuality(args, 20, 4);
    return 0;
  }
  weir::bench::MeasureTimes(args, {.layers = 1000, .stages = 16, .micro_batches = 64}, {});
  weir::bench::MeasureTimes(args, {.layers = 10000, .stages = 64, .micro_batches = 32},
                            {.solve_ms = 200, .check_ms = 50, .play_ms = 100});
  weir::bench::MeasureTimes(args, {.layers = 10000, .stages = 64, .micro_batches = 256},
                            {.solve_ms = 200, .check_ms = 50});
  weir::bench::MeasureQuality(args, 20, 4);
  weir::bench::MeasureQuality(args, 100, 8);
  weir::bench::MeasureQuality(args, 1000, 16);
}
