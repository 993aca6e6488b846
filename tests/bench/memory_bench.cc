// Memory that the plan says against memory that the process takes: pages that came to be
// resident from before the session is made to after its third step.
//   tools/bench memory
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

constexpr double kMiB = 1 << 20;

// A line of /proc/self/status in bytes.
double StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, field + ":")) return std::stod(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << 5; }

struct Sizes {
  double planned = 0;
  double outside_arena = 0;  // of planned: workspaces and staging
  double anonymous = 0;  // private pages written to, after three steps
  double resident = 0;   // with those of program and libraries that were read for it
};

Sizes MeasureHere(const std::string& mesh) {
  const TransformerOptions gpt = MediumGpt();
  CountingFeed feed(gpt.vocab);
  Sizes sizes;
  std::vector<RankPlan> plans = PlansOf(gpt, mesh);
  SessionOptions options;
  options.feed = &feed;
  malloc_trim(0);
  ForgetPeak();
  const double resident_before = StatusBytes("VmRSS"), anonymous_before = StatusBytes("RssAnon");
  std::unique_ptr<Session> session = Must(Session::Create(plans, options));
  Must(session->RunSteps(3));
  sizes.resident = StatusBytes("VmHWM") - resident_before;
  sizes.anonymous = StatusBytes("RssAnon") - anonymous_before;
  for (int rank : session->local_ranks()) {
    const RankMemory memory = session->Memory(rank);
    sizes.outside_arena += static_cast<double>(memory.workspace_bytes + memory.staging_bytes);
    sizes.planned += static_cast<double>(memory.arena_bytes);
  }
  sizes.planned += sizes.outside_arena;
  return sizes;
}

// In a process of its own, so that nothing of an earlier one is left.
Sizes MeasureApart(const std::string& mesh) {
  int ends[2];
  Sizes sizes;
  if (pipe(ends) != 0) return sizes;
  const pid_t child = fork();
  if (child == 0) {
    sizes = MeasureHere(mesh);
    const bool written = write(ends[1], &sizes, sizeof(sizes)) == sizeof(sizes);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  const bool got = read(ends[0], &sizes, sizeof(sizes)) == sizeof(sizes);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!got || status != 0) Must(absl::InternalError("the measuring process failed"));
  return sizes;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  using namespace weir::bench;
  const BenchArgs args = ParseArgs(argc, argv);
  for (const std::string mesh : {"", "dp=2"}) {
    std::vector<double> planned, anonymous, resident;
    Sizes sizes;
    for (int i = 0; i < args.Repeats(3); ++i) {
      sizes = MeasureApart(mesh);
      planned.push_back(sizes.planned / kMiB);
      anonymous.push_back(sizes.anonymous / kMiB);
      resident.push_back(sizes.resident / kMiB);
    }
    const std::string what = absl::StrCat("medium GPT, ", mesh.empty() ? "1 device" : mesh);
    PrintRow({absl::StrCat(what, ": peak"), "MiB", resident, "planned", planned, BenchRow::Better::kLower, 1.02,
              "with the pages of oneDNN's code, which come in at its first use"});
    PrintRow({absl::StrCat(what, ": data at the end"), "MiB", anonymous, "planned", planned, BenchRow::Better::kLower, 1.02,
              absl::StrCat("of the plan, ", static_cast<int64_t>(sizes.outside_arena / kMiB), " MiB are kernels' workspaces")});
  }
}
