// Measures the cost and the gain of register counts on ten random pipelines: one slot everywhere,
// two, twice the stages, the counts of the schedule, and solved counts. Virtual time runs the
// production plans and protocol with the costs that the compiler planned with. Real time runs only
// the pipelines that have a core for every stage.
//   tools/bench registers
#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"
#include "tools/job/job_file.h"

namespace weir::bench {
namespace {

constexpr int kPipelines = 10;

struct Pipeline {
  std::string name;
  proto::Job job;
  int stages = 0;
  int64_t vocab = 0;
};

// Makes stages of one to five blocks, so that their costs differ. Every third pipeline has two
// stages, for machines of two cores.
Pipeline RandomPipeline(int seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Pipeline pipeline;
  pipeline.stages = seed % 3 == 0 ? 2 : static_cast<int>(draw(3, 8));
  std::vector<std::string> blocks;
  std::vector<int64_t> cuts;
  int64_t layers = 0;
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    const int64_t of_stage = draw(1, 5);
    blocks.push_back(absl::StrCat(of_stage));
    layers += of_stage;
    cuts.push_back(layers);
  }
  zoo::TransformerOptions options = SmallGpt();
  options.layers = layers;
  options.hidden = 32 * draw(2, 6);
  options.training.micro_batches = draw(2, 4) * pipeline.stages;
  options.training.batch = options.training.micro_batches * draw(1, 4);
  pipeline.vocab = options.vocab;
  pipeline.job = Must(zoo::GptJob(options));
  Must(job::SetMesh(absl::StrCat("pp=", pipeline.stages), &pipeline.job));
  for (int stage = 0; stage + 1 < pipeline.stages; ++stage)
    pipeline.job.mutable_pipeline()->add_cut(absl::StrCat("layers.", cuts[stage]));
  pipeline.name =
      absl::StrCat("pipeline ", seed, ": ", absl::StrJoin(blocks, "+"), " blocks, hidden ",
                   options.hidden, ", ", options.training.micro_batches, " micro-batches");
  return pipeline;
}

struct Choice {
  std::string name;
  proto::Runtime::Registers registers;
};

struct Compiled {
  std::vector<proto::RankPlan> plans;
  int64_t micro_batch_ns = 0;
  int64_t bound_ns = 0;
  int64_t register_bytes = 0;  // over all devices, without weights
};

Compiled Compile(const Pipeline& pipeline, proto::Runtime::Registers registers) {
  proto::Job job = pipeline.job;
  job.mutable_runtime()->set_registers(registers);
  std::unique_ptr<compiler::LogicalPlan> logical = Must(compiler::CompileJob(job, {}));
  Compiled compiled;
  compiled.micro_batch_ns = logical->rhythm.micro_batch_ns;
  compiled.bound_ns = compiler::BoundPeriod(
                          Must(compiler::BuildStationGraph(*logical, compiler::PeakCosts())).timed)
                          .micro_batch_ns;
  for (RankId rank : logical->places.all_ranks()) {
    compiled.plans.push_back(Must(compiler::LowerForRank(*logical, rank)));
    for (const proto::RegisterSpec& spec : compiled.plans.back().registers()) {
      if (spec.initial_tokens() == 0 && spec.side() != proto::RegisterSpec::OUTBOUND)
        compiled.register_bytes += spec.bytes() * spec.slots();
    }
  }
  return compiled;
}

// Returns the time of one step, with the times and latencies that the plans were made with.
double VirtualNs(const Compiled& compiled, int64_t vocab) {
  CountingFeed feed(vocab);
  actors::SessionOptions options;
  options.feed = &feed;
  options.engine = actors::SessionOptions::EngineKind::kSim;
  options.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
  options.compute = actors::RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [&](const actors::Plan& plan, const actors::PlanActor& actor) {
    return compiled.plans[plan.rank.value()].actor(actor.id.value()).timing().time_ns();
  };
  options.sim_latency_ns = [](int64_t bytes, RankId from, RankId to) {
    const compiler::PeakCosts costs;
    return costs.LatencyNs(costs.LevelBetween(from, to), bytes);
  };
  std::unique_ptr<actors::Session> session = Must(actors::Session::Create(compiled.plans, options));
  Must(session->RunSteps(1));
  return static_cast<double>(session->simulator()->now_ns());
}

std::unique_ptr<actors::Session> OpenReal(const Compiled& compiled, actors::DataFeed* feed) {
  actors::SessionOptions options;
  options.feed = feed;
  std::unique_ptr<actors::Session> session = Must(actors::Session::Create(compiled.plans, options));
  Must(session->RunSteps(3));
  return session;
}

void Measure(const BenchArgs& args, int seed) {
  const Pipeline pipeline = RandomPipeline(seed);
  const Compiled solved = Compile(pipeline, proto::Runtime::SOLVED);
  const double solved_ns = VirtualNs(solved, pipeline.vocab);
  PrintRow({absl::StrCat(pipeline.name, "; solved: period"),
            "ns",
            {static_cast<double>(solved.micro_batch_ns)},
            "bound",
            {static_cast<double>(solved.bound_ns)},
            BenchRow::Better::kLower,
            1.01,
            absl::StrCat("planned; a step takes ", static_cast<int64_t>(solved_ns),
                         " ns of virtual time")});
  const std::vector<Choice> choices = {{"one slot everywhere", proto::Runtime::ONE},
                                       {"two", proto::Runtime::TWO},
                                       {"twice the stages", proto::Runtime::TWICE_STAGES},
                                       {"the schedule's", proto::Runtime::SCHEDULE}};
  const bool fits = pipeline.stages <= static_cast<int>(std::thread::hardware_concurrency());
  CountingFeed feed(pipeline.vocab);
  for (const Choice& choice : choices) {
    const Compiled other = Compile(pipeline, choice.registers);
    const double other_ns = VirtualNs(other, pipeline.vocab);
    PrintRow({absl::StrCat("  step with solved counts beside ", choice.name, ", virtual"),
              "ns",
              {solved_ns},
              choice.name,
              {other_ns},
              BenchRow::Better::kLower,
              {},
              absl::StrCat("period ", other.micro_batch_ns, " ns, ",
                           other.micro_batch_ns * 100 / std::max<int64_t>(1, solved.bound_ns),
                           " % of the bound")});
    PrintRow({absl::StrCat("  bytes of registers beside ", choice.name),
              "KiB",
              {static_cast<double>(solved.register_bytes) / 1024},
              choice.name,
              {static_cast<double>(other.register_bytes) / 1024},
              BenchRow::Better::kLower,
              {},
              "all devices"});
    if (!fits) continue;
    std::unique_ptr<actors::Session> ours = OpenReal(solved, &feed),
                                     theirs = OpenReal(other, &feed);
    auto step = [&](actors::Session& session) {
      const double begin = WallNs();
      Must(session.RunSteps(1));
      return WallNs() - begin;
    };
    Pairs pairs = Alternate(
        args.Repeats(11), [&] { return step(*ours); }, [&] { return step(*theirs); });
    PrintRow({absl::StrCat("  step with solved counts beside ", choice.name, ", real"),
              "ns",
              pairs.ours,
              choice.name,
              pairs.theirs,
              BenchRow::Better::kLower,
              {},
              absl::StrCat(pipeline.stages, " stages, a thread each")});
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  for (int seed = 1; seed <= args.Sized(weir::bench::kPipelines, 1); ++seed)
    weir::bench::Measure(args, seed);
}
