#include "tests/rhythm/virtual_step.h"

#include <fstream>
#include <sstream>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tests/training/train_run.h"
#include "tools/trace/trace_report.h"

namespace weir::rhythm {
namespace {

using compiler::PeakCosts;

double BubbleOf(const actors::Session& session) {
  const std::string path = TemporaryPath("virtual_step.pftrace");
  const absl::Status written = session.WriteTrace(path);
  EXPECT_TRUE(written.ok()) << written;
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const absl::StatusOr<trace::TraceReport> report = trace::ReadTraceReport(bytes.str());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? report->pipeline_bubble : 0;
}

}  // namespace

VirtualStep PlayJob(const proto::Job& job, int steps, const ActCost& cost) {
  VirtualStep out;
  const absl::StatusOr<std::vector<proto::RankPlan>> plans = training::CompileForAllRanks(job);
  EXPECT_TRUE(plans.ok()) << plans.status();
  if (!plans.ok()) return out;
  for (const proto::RankPlan& plan : *plans) out.arena_bytes.push_back(plan.arena_bytes());
  const std::unique_ptr<actors::DataFeed> feed = training::RepeatingFeed(job);
  actors::SessionOptions options = training::VirtualTimeOptions(feed.get());
  if (cost) {
    options.sim_cost_ns = cost;
  } else {
    options.sim_latency_ns = [](int64_t bytes, RankId from, RankId to) {
      return PeakCosts().LatencyNs(PeakCosts().LevelBetween(from, to), bytes);
    };
  }
  const absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(*plans, options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return out;
  const absl::Status ran = (*session)->RunSteps(steps);
  EXPECT_TRUE(ran.ok()) << ran;
  out.all_steps_ns = (*session)->simulator()->now_ns();
  if (steps > 1) out.bubble = BubbleOf(**session);
  return out;
}

}  // namespace weir::rhythm
