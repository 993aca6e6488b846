// Tests that the parts of a step by cause, as ranks count them while they run, are the time of the
// steps and agree with the parts that the report of a trace finds in the same steps.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/session/session.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/live/live_run.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/step_parts.h"
#include "tools/train/step_shares.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

using trace::StepPartKind;

constexpr int64_t kStepsInVirtualTime = 5, kSteps = 40;
constexpr int kTries = 5;          // of a measurement that other programs may disturb
constexpr double kCovered = 0.98;  // of the time of a run, at least
constexpr double kNear = 0.02;     // of a step: between a share counted live and that of the report
constexpr double kExactly = 0.0005;  // the same in virtual time, where waits below 200 ns are lost

struct Played {
  std::vector<double> live;    // shares by live::kStepParts
  std::vector<double> report;  // the same from the trace
  double covered = 0;          // the part of the time of the run that accounts have
};

// Returns the shares of a report by live::kStepParts.
std::vector<double> Joined(const std::vector<trace::StepPart>& parts) {
  std::vector<double> shares(live::kStepParts.size(), 0);
  for (const trace::StepPart& part : parts) {
    const bool is_other_rank = part.kind == StepPartKind::kUnderWay ||
                               part.kind == StepPartKind::kBubble ||
                               part.kind == StepPartKind::kLateSender;
    const std::string name = is_other_rank ? "waits for other ranks" : trace::Name(part.kind);
    const auto at = std::find(live::kStepParts.begin(), live::kStepParts.end(), name);
    EXPECT_NE(at, live::kStepParts.end()) << name;
    if (at != live::kStepParts.end()) shares[at - live::kStepParts.begin()] += part.share;
  }
  return shares;
}

int64_t NowNs(const actors::Session& session) {
  if (session.simulator() != nullptr) return session.simulator()->now_ns();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs a step that warms up, and then `steps` more, which the report calls steady.
Played Play(const proto::Job& job, int64_t steps, actors::SessionOptions options) {
  Played run;
  const absl::StatusOr<std::vector<proto::RankPlan>> plans = CompileForAllRanks(job);
  EXPECT_TRUE(plans.ok()) << plans.status();
  if (!plans.ok()) return run;
  absl::StatusOr<std::unique_ptr<actors::Session>> made =
      actors::Session::Create(*plans, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return run;
  actors::Session& session = **made;
  EXPECT_EQ(session.RunSteps(1), absl::OkStatus());
  train::StepShares shares;
  shares.Look(session.Work(), 1);
  const std::vector<actors::RankWorkReport> before = session.Work();
  const int64_t begin_ns = NowNs(session);
  EXPECT_EQ(session.RunSteps(steps), absl::OkStatus());
  const int64_t wall_ns = NowNs(session) - begin_ns;
  const std::vector<actors::RankWorkReport> after = session.Work();
  for (size_t i = 0; i < after.size(); ++i) {
    const auto sum = [](const actors::TimeParts& parts) {
      return static_cast<double>(std::accumulate(parts.begin(), parts.end(), int64_t{0}));
    };
    run.covered += (sum(after[i].part_ns) - sum(before[i].part_ns)) /
                   static_cast<double>(wall_ns * static_cast<int64_t>(after.size()));
  }
  run.live = shares.Look(after, static_cast<double>(wall_ns) * 1e-9);
  std::stringstream file;
  EXPECT_EQ(session.WriteTrace(file, {}), absl::OkStatus());
  trace::TraceReader trace;
  EXPECT_EQ(trace.Read(file.str()), absl::OkStatus());
  const absl::StatusOr<trace::RecordedRun> recorded = trace::ReadRecordedRun(trace);
  EXPECT_TRUE(recorded.ok()) << recorded.status();
  if (!recorded.ok()) return run;
  EXPECT_EQ(recorded->times.steps.size(), static_cast<size_t>(steps + 1));
  run.report = Joined(trace::FindStepParts(*recorded));
  return run;
}

std::string TextOf(const Played& run) {
  std::string text = absl::StrCat("covered ", run.covered, "\n");
  for (size_t part = 0; part < std::min(run.live.size(), run.report.size()); ++part) {
    absl::StrAppend(&text, live::kStepParts[part], ": live ", run.live[part], ", report ",
                    run.report[part], "\n");
  }
  return text;
}

double FarthestApart(const Played& run) {
  double most = run.live.size() == run.report.size() ? 0 : 1;
  for (size_t part = 0; part < std::min(run.live.size(), run.report.size()); ++part)
    most = std::max(most, std::abs(run.live[part] - run.report[part]));
  return most;
}

TEST(StepParts, AreThoseOfTheReportOnEveryLayoutInVirtualTime) {
  for (const Layout& layout : LayoutMatrix()) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, SmallTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    const std::unique_ptr<actors::DataFeed> feed = RepeatingFeed(*job);
    actors::SessionOptions options = VirtualTimeOptions(feed.get());
    options.sim_latency_ns = [](int64_t bytes, RankId, RankId) -> int64_t {
      return 5000 + bytes / 4;
    };
    const Played run = Play(*job, kStepsInVirtualTime, std::move(options));
    EXPECT_LE(FarthestApart(run), kExactly) << TextOf(run);
    EXPECT_GT(run.live[0], 0.1) << TextOf(run);
    EXPECT_LE(run.covered, 1 + 1e-9) << TextOf(run);
  }
}

TEST(StepParts, AddUpToTheTimeOfTheRunAndAreThoseOfTheReportInRealTime) {
  for (const char* mesh : {"", "dp=2", "pp=2", "tp=2", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    absl::StatusOr<proto::Job> job = zoo::GptJob(SmallTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    if (*mesh != '\0') *job = WithMesh(*job, mesh);
    const std::unique_ptr<actors::DataFeed> feed = RepeatingFeed(*job);
    Played run;
    for (int k = 0; k < kTries; ++k) {
      actors::SessionOptions options;
      options.feed = feed.get();
      run = Play(*job, kSteps, std::move(options));
      if (run.covered >= kCovered && FarthestApart(run) <= kNear) break;
    }
    EXPECT_GE(run.covered, kCovered) << TextOf(run);
    EXPECT_LE(run.covered, 1.001) << TextOf(run);
    EXPECT_LE(FarthestApart(run), kNear) << TextOf(run);
  }
}

}  // namespace
}  // namespace weir::training
