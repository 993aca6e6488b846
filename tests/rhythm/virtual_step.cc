#include "tests/rhythm/virtual_step.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/trace/trace_report.h"
#include "tests/training/train_run.h"

namespace weir::testing {
namespace {

using compiler::PeakCosts;

double BubbleOf(const Session& session) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/virtual_step.pftrace");
  const absl::Status written = session.WriteTrace(path);
  EXPECT_TRUE(written.ok()) << written;
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const absl::StatusOr<TraceReport> report = ReadTraceReport(bytes.str());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->pipeline_bubble : 0;
}

}  // namespace

VirtualStep PlayJob(const Job& job, int steps, const ActCost& cost) {
  VirtualStep out;
  const absl::StatusOr<std::unique_ptr<LogicalPlan>> logical = CompileJob(job, {});
  EXPECT_TRUE(logical.ok()) << logical.status();
  if (!logical.ok()) return out;
  std::vector<RankPlan> plans;
  for (int64_t rank = 0; rank < (*logical)->mesh.num_ranks(); ++rank) {
    absl::StatusOr<RankPlan> plan = LowerForRank(**logical, rank);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return out;
    out.arena_bytes.push_back(plan->arena_bytes());
    plans.push_back(*std::move(plan));
  }
  const std::unique_ptr<DataFeed> feed = RepeatingFeed(job);
  SessionOptions options;
  options.feed = feed.get();
  options.engine = SessionOptions::EngineKind::kSim;
  options.sim.chooser = SimEngineOptions::Chooser::kByTime;
  options.compute = RankExecutorOptions::Compute::kSkip;
  if (cost) {
    options.sim_cost_ns = cost;
  } else {
    options.sim_cost_ns = [](const Plan&, const PlanActor& actor) { return actor.timing.time_ns; };
    options.sim_latency_ns = [](int64_t bytes, int from, int to) { return PeakCosts().LatencyNs(PeakCosts().LevelBetween(from, to), bytes); };
  }
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(plans, options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return out;
  const absl::Status ran = (*session)->RunSteps(steps);
  EXPECT_TRUE(ran.ok()) << ran;
  out.all_steps_ns = (*session)->simulator()->now_ns();
  if (steps > 1) out.bubble = BubbleOf(**session);
  return out;
}

}  // namespace weir::testing
