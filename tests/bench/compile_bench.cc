// Measures the cost of compiling a job to the plan of one rank, per op and in total, in the starter
// and in a worker, and whether the cost grows with the number of ranks.
//   tools/bench compile
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/plan.h"
#include "compiler/compile.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"
#include "tools/job/job_file.h"

namespace weir::bench {
namespace {

struct Case {
  std::string name;
  zoo::TransformerOptions gpt;
  std::string mesh;
  double seconds_max;  // 0: no budget
};

std::vector<Case> Cases() {
  zoo::TransformerOptions large;
  large.layers = 96;
  large.hidden = 12288;
  large.heads = 96;
  large.vocab = 51200;
  large.sequence = 2048;
  large.training.batch = 1536;
  large.training.micro_batches = 16;
  zoo::TransformerOptions zero = large;
  zero.training.zero_stage = 1;
  return {{"GPT of 8 layers, 1 device", SmallGpt(), "", 0},
          {"GPT of 8 layers, dp=2,tp=2", SmallGpt(), "dp=2,tp=2", 0},
          {"GPT of 96 layers, 1 device", large, "", 0},
          {"GPT of 96 layers, 32 devices", large, "dp=4,tp=8", 0},
          {"GPT of 96 layers, 1,024 devices, tp=8,dp=128", large, "dp=128,tp=8", 2},
          {"GPT of 96 layers, 1,024 devices, pp=8,dp=16,tp=8", large, "dp=16,tp=8,pp=8", 2},
          {"the same with ZeRO-1", zero, "dp=16,tp=8,pp=8", 2}};
}

int64_t NumOps(const proto::RankPlan& plan) {
  int64_t ops = 0;
  for (const proto::ActorSpec& actor : plan.actor()) {
    ops += actor.program() >= 0 && plan.program_size() > 0
               ? plan.program(actor.program()).call_size()
               : 0;
  }
  return ops;
}

// A compilation from a job to the plan of a rank in the middle of the mesh.
struct Compilation {
  std::unique_ptr<compiler::LogicalPlan> logical;
  proto::RankPlan plan;
  double seconds = 0;        // of CPU time
  double logical_share = 0;  // percent of them that the logical plan takes
};

Compilation Compile(const proto::Job& job, const compiler::CompileOptions& options) {
  Compilation made;
  const double begin = ThreadCpuNs();
  made.logical = Must(compiler::CompileJob(job, options));
  const double middle = ThreadCpuNs();
  const RankId rank(static_cast<int32_t>(made.logical->mesh.num_ranks() / 2));
  made.plan = Must(compiler::LowerForRank(*made.logical, rank));
  const double end = ThreadCpuNs();
  made.seconds = (end - begin) * 1e-9;
  made.logical_share = (middle - begin) / (end - begin) * 100;
  return made;
}

void PrintPerOp(const std::string& what, const std::vector<double>& us_per_op,
                const std::string& note) {
  PrintRow({what, "us", us_per_op, "budget 10 us", {10}, BenchRow::Better::kLower, 1.0, note});
}

// The starter of a job solves the rhythm of all ranks and sends it to the workers, so a rank in a
// worker is measured apart.
void Measure(const BenchArgs& args, const Case& c) {
  proto::Job job = Must(zoo::GptJob(c.gpt));
  Must(job::SetMesh(c.mesh, &job));
  std::vector<double> seconds, logical_share, us_per_op, worker_us_per_op;
  int64_t ops = 0, actors = 0;
  for (int i = 0; i < args.Repeats(7); ++i) {
    const Compilation starter = Compile(job, {});
    compiler::CompileOptions with_rhythm;
    with_rhythm.rhythm = &starter.logical->rhythm;
    const Compilation worker = Compile(job, with_rhythm);
    ops = NumOps(starter.plan);
    actors = starter.plan.actor_size();
    seconds.push_back(starter.seconds);
    logical_share.push_back(starter.logical_share);
    us_per_op.push_back(starter.seconds * 1e6 / static_cast<double>(ops));
    worker_us_per_op.push_back(worker.seconds * 1e6 / static_cast<double>(ops));
  }
  if (c.seconds_max > 0) {
    PrintRow({absl::StrCat(c.name, ": job to plan of a rank"),
              "s",
              seconds,
              absl::StrCat("budget ", c.seconds_max, " s"),
              {c.seconds_max},
              BenchRow::Better::kLower,
              1.0,
              absl::StrCat("CPU time, ", ops, " ops in ", actors, " actors")});
  }
  PrintPerOp(absl::StrCat(c.name, ": per op"), us_per_op,
             absl::StrCat(ops, " ops of the rank; logical plan ",
                          static_cast<int64_t>(Median(logical_share)), " % of it"));
  if (!c.mesh.empty()) {
    PrintPerOp(absl::StrCat(c.name, ": per op in a worker"), worker_us_per_op,
               "the starter has solved the rhythm");
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  std::vector<weir::bench::Case> cases = weir::bench::Cases();
  cases.resize(args.Sized<size_t>(cases.size(), 2));
  for (const weir::bench::Case& c : cases) weir::bench::Measure(args, c);
}
