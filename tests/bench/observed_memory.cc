#include "tests/bench/observed_memory.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"

namespace weir::bench {
namespace {

// Returns a field of /proc/self/status in bytes.
double StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, field + ":")) return std::stod(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << 5; }

ObservedMemory ObserveHere(zoo::TransformerOptions gpt, const MemoryCase& of) {
  gpt.training.zero_stage = of.zero_stage;
  gpt.training.micro_batches = of.micro_batches;
  gpt.training.recompute = of.keep == MemoryCase::Keep::kRecompute;
  CountingFeed feed(gpt.vocab);
  ObservedMemory observed;
  std::vector<proto::RankPlan> plans = PlansOf(gpt, of.mesh);
  actors::SessionOptions options;
  options.feed = &feed;
  malloc_trim(0);
  ForgetPeak();
  const double resident_before = StatusBytes("VmRSS"), anonymous_before = StatusBytes("RssAnon");
  std::unique_ptr<actors::Session> session = Must(actors::Session::Create(plans, options));
  Must(session->RunSteps(3));
  observed.resident = StatusBytes("VmHWM") - resident_before;
  observed.anonymous = StatusBytes("RssAnon") - anonymous_before;
  for (const RankId rank : session->local_ranks()) {
    const actors::RankMemory memory = session->Memory(rank);
    observed.outside_arena += static_cast<double>(memory.workspace_bytes + memory.staging_bytes);
    observed.planned += static_cast<double>(memory.arena_bytes);
  }
  observed.planned += observed.outside_arena;
  return observed;
}

}  // namespace

std::vector<MemoryCase> MemoryCases() {
  return {{"1 device", ""},
          {"dp=2", "dp=2"},
          {"ZeRO-3 on dp=2", "dp=2", 3},
          {"1F1B on pp=2, 4 micro-batches", "pp=2", 0, 4},
          {"recomputation, 1 device", "", 0, 1, MemoryCase::Keep::kRecompute}};
}

zoo::TransformerOptions DeepGpt() {
  zoo::TransformerOptions gpt = MediumGpt();
  gpt.layers *= 2;
  return gpt;
}

ObservedMemory ObserveApart(zoo::TransformerOptions gpt, const MemoryCase& of) {
  int ends[2];
  ObservedMemory observed;
  if (pipe(ends) != 0) Must(absl::InternalError("no pipe to the measuring process"));
  const pid_t child = fork();
  if (child == 0) {
    observed = ObserveHere(gpt, of);
    const bool written = write(ends[1], &observed, sizeof(observed)) == sizeof(observed);
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  const bool got = read(ends[0], &observed, sizeof(observed)) == sizeof(observed);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!got || status != 0) Must(absl::InternalError("the measuring process failed"));
  return observed;
}

}  // namespace weir::bench
