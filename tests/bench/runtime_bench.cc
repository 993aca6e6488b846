// Measures what the runtime adds to the kernels of a step, its requests to the heap, and the cost
// of tracing.
//   tools/bench op trace
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "actors/testing/certified.h"
#include "tests/bench/allocation_count.h"
#include "tests/bench/bench_gpt.h"
#include "tests/bench/bench_row.h"
#include "tests/bench/hop_plans.h"

namespace weir::bench {
namespace {

constexpr int kWarmUpSteps = 5;

std::unique_ptr<actors::Session> Open(const std::vector<proto::RankPlan>& plans,
                                      actors::DataFeed* feed, int64_t trace_capacity = 1 << 16,
                                      const actors::CafEngineOptions& caf = {}) {
  actors::SessionOptions options;
  options.feed = feed;
  options.caf = caf;
  options.trace_capacity = trace_capacity;
  std::unique_ptr<actors::Session> session = Must(actors::Session::Create(plans, options));
  Must(session->RunSteps(kWarmUpSteps));
  return session;
}

double CpuNsPerStep(actors::Session& session, int steps) {
  const double begin = ProcessCpuNs();
  Must(session.RunSteps(steps));
  return (ProcessCpuNs() - begin) / steps;
}

void CostPerOp(const BenchArgs& args) {
  const zoo::TransformerOptions gpt = TinyGpt();
  CountingFeed feed(gpt.vocab);
  std::vector<proto::RankPlan> plans = PlansOf(gpt, "");
  std::unique_ptr<actors::Session> session = Open(plans, &feed);
  const auto calls = static_cast<double>(KernelCallsPerStep(session->plan(RankId(0))));
  const auto acts = static_cast<double>(ActsPerStep(session->plan(RankId(0))));
  KernelLoop loop(*session, &feed);
  const int steps = args.Repeats(300), repeats = args.Repeats(21);
  Pairs pairs = Alternate(
      repeats, [&] { return CpuNsPerStep(*session, steps); },
      [&] {
        const double begin = ThreadCpuNs();
        for (int i = 0; i < steps; ++i) loop.Run();
        return (ThreadCpuNs() - begin) / steps;
      });
  std::vector<double> per_call, per_act;
  for (size_t i = 0; i < pairs.ours.size(); ++i) {
    per_call.push_back((pairs.ours[i] - pairs.theirs[i]) / calls);
    per_act.push_back((pairs.ours[i] - pairs.theirs[i]) / acts);
  }
  const std::string what =
      absl::StrCat("runtime per op, GPT of ", calls, " kernels in ", acts, " acts");
  PrintRow({what,
            "ns",
            per_call,
            "budget 200 ns",
            {200},
            BenchRow::Better::kLower,
            1.0,
            "step minus its kernels in a loop, CPU time"});
  PrintRow({"the same per act",
            "ns",
            per_act,
            "",
            {},
            BenchRow::Better::kLower,
            {},
            "an act runs several kernels"});
  PrintRow({"that step against its kernels in a loop",
            "ns",
            pairs.ours,
            "plain loop",
            pairs.theirs,
            BenchRow::Better::kLower,
            {},
            "tensors of a few elements"});

  // Removes the programs, which leaves only the protocol.
  for (proto::RankPlan& plan : plans) {
    for (proto::Program& program : *plan.mutable_program()) program.clear_call();
  }
  session = Open(plans, &feed);
  std::vector<double> empty;
  for (int i = 0; i < repeats; ++i) empty.push_back(CpuNsPerStep(*session, steps) / calls);
  PrintRow({"the same plan with empty programs, per op",
            "ns",
            empty,
            "budget 200 ns",
            {200},
            BenchRow::Better::kLower,
            1.0,
            "CPU time"});
}

void Allocations(const BenchArgs& args) {
  const int steps = args.Repeats(200);
  for (const std::string mesh : {"", "dp=2,tp=2"}) {
    const zoo::TransformerOptions gpt = TinyGpt();
    CountingFeed feed(gpt.vocab);
    const std::vector<proto::RankPlan> plans = PlansOf(gpt, mesh);
    std::unique_ptr<actors::Session> session = Open(plans, &feed);
    auto per_step = [&] {
      const int64_t before = NumAllocations();
      Must(session->RunSteps(steps));
      return static_cast<double>(NumAllocations() - before) / steps;
    };
    double in_kernels = 0;
    if (mesh.empty()) {
      KernelLoop loop(*session, &feed);
      loop.Run();
      const int64_t before = NumAllocations();
      loop.Run();
      in_kernels = static_cast<double>(NumAllocations() - before);
    }
    std::vector<double> all, runtime;
    for (int i = 0; i < 6; ++i) {
      all.push_back(per_step());
      runtime.push_back(all.back() - in_kernels);
    }
    const std::string devices = mesh.empty() ? "1 device" : mesh;
    PrintRow(
        {absl::StrCat("heap allocations a step, ", devices),
         "",
         all,
         "budget 0",
         {0},
         BenchRow::Better::kLower,
         0.0,
         mesh.empty() ? "nearly all are oneDNN's, freed at once" : "oneDNN's and CAF's wake-ups"});
    if (mesh.empty()) {
      PrintRow({absl::StrCat("of these outside kernels, ", devices),
                "",
                runtime,
                "budget 0",
                {0},
                BenchRow::Better::kLower,
                0.0,
                absl::StrCat("over runs of ", steps, " steps; starting a run takes a few")});
      continue;
    }
    std::vector<proto::RankPlan> empty = plans;
    for (proto::RankPlan& plan : empty) {
      for (proto::Program& program : *plan.mutable_program()) {
        for (int i = program.call_size(); i-- > 0;) {
          if (!absl::StartsWith(program.call(i).op(), "exchange_"))
            program.mutable_call()->DeleteSubrange(i, 1);
        }
      }
    }
    session = Open(empty, &feed);
    runtime.clear();
    for (int i = 0; i < 6; ++i) runtime.push_back(per_step());
    PrintRow({absl::StrCat("of these with exchanges as the only kernels, ", devices),
              "",
              runtime,
              "budget 0",
              {0},
              BenchRow::Better::kLower,
              0.0,
              "a wake-up of a parked rank is a CAF message"});
    actors::CafEngineOptions awake;
    awake.polls_before_parking = 1 << 20;
    session = Open(empty, &feed, 1 << 16, awake);
    runtime.clear();
    for (int i = 0; i < 6; ++i) runtime.push_back(per_step());
    PrintRow({absl::StrCat("the same with ranks that do not park, ", devices),
              "",
              runtime,
              "budget 0",
              {0},
              BenchRow::Better::kLower,
              0.0,
              absl::StrCat("over runs of ", steps, " steps; starting a run takes a few")});
  }
}

// Returns the time of a reading of the clock and a record, in a loop.
double NsPerRecord() {
  constexpr int kRecords = 1 << 18;
  trace::ActRing ring(1 << 16);
  const double begin = ThreadCpuNs();
  for (int i = 0; i < kRecords; ++i) {
    const int64_t now = TickClock::Now();
    trace::ActRecord& record = ring.Add();
    record.actor = ActorId(i);
    record.step = record.micro_batch = record.chunk = i;
    record.ready = record.start = record.end = now;
    record.bytes_sent = 0;
    record.waited_register = RegisterId(0);
    record.wait = trace::ActRecord::Wait::kInput;
  }
  return (ThreadCpuNs() - begin) / kRecords;
}

void Trace(const BenchArgs& args) {
  const zoo::TransformerOptions gpt = SmallGpt();
  CountingFeed feed(gpt.vocab);
  const std::vector<proto::RankPlan> plans = PlansOf(gpt, "");
  const int repeats = args.Repeats(12), steps = 3;
  std::unique_ptr<actors::Session> traced = Open(plans, &feed), untraced = Open(plans, &feed, 0);
  Pairs pairs = Alternate(
      repeats, [&] { return CpuNsPerStep(*traced, steps) * 1e-6; },
      [&] { return CpuNsPerStep(*untraced, steps) * 1e-6; });
  PrintRow({"GPT step with acts kept", "ms", pairs.ours, "none kept", pairs.theirs,
            BenchRow::Better::kLower, 1.01, "CPU time"});
  std::vector<double> share;
  for (int i = 0; i < repeats; ++i) {
    share.push_back(NsPerRecord() * static_cast<double>(ActsPerStep(traced->plan(RankId(0)))) /
                    (pairs.ours[i] * 1e6) * 100);
  }
  PrintRow({"records and readings of the time, share of that step",
            "%",
            share,
            "budget 1 %",
            {1},
            BenchRow::Better::kLower,
            1.0,
            "cost of one in a loop times acts"});
  const std::vector<proto::RankPlan> chain_plans = actors::Certified({ChainPlan(32, 2, 5000)});
  std::unique_ptr<actors::Session> chain = Open(chain_plans, &feed),
                                   silent = Open(chain_plans, &feed, 0);
  pairs = Alternate(
      repeats, [&] { return CpuNsPerStep(*chain, 1) / 160000; },
      [&] { return CpuNsPerStep(*silent, 1) / 160000; });
  PrintRow({"hop with acts kept",
            "ns",
            pairs.ours,
            "none kept",
            pairs.theirs,
            BenchRow::Better::kLower,
            {},
            "an act that does nothing"});
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const weir::bench::BenchArgs args = weir::bench::ParseArgs(argc, argv);
  if (args.Wants("op")) {
    weir::bench::CostPerOp(args);
    weir::bench::Allocations(args);
  }
  if (args.Wants("trace")) weir::bench::Trace(args);
}
