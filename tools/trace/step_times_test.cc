// Steps of hand-made records, whose begins and ends are known in closed form.
#include "tools/trace/step_times.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/trace/trace_file.h"
#include "tools/trace/step_rule.h"
#include "tools/trace/trace_report.h"

namespace weir::trace {
namespace {

constexpr int64_t kMs = 1'000'000;

TracedActor Actor(const std::string& name, const std::string& phase, std::vector<TracedPort> inputs,
                  std::vector<TracedPort> outputs) {
  TracedActor actor;
  actor.name = actor.function = name;
  actor.phase = phase;
  actor.inputs = std::move(inputs);
  actor.outputs = std::move(outputs);
  return actor;
}

TracedPort Port(int32_t register_id) { return {RegisterId(register_id), Span()}; }

// LateReports is one rank that works and updates in 10 ms a step, and sends the norm of each step
// through a transfer to a report. Transfer and report both come one whole step late. RunBegins
// makes the begin of a run; Step makes the acts of a step.
class LateReports {
 public:
  explicit LateReports(int64_t capacity = 64) : acts_(capacity) {}

  void RunBegins(int64_t at_ms) { Add(ActorId(), 0, at_ms * kMs, at_ms * kMs); }
  void Work(int64_t step, int64_t at_ms) {
    Add(ActorId(0), step, at_ms * kMs, (at_ms + 6) * kMs);
    Add(ActorId(1), step, (at_ms + 6) * kMs, (at_ms + 10) * kMs);
  }
  void Report(int64_t step, int64_t at_ms) {
    Add(ActorId(2), step, at_ms * kMs, at_ms * kMs + 1000);
    Add(ActorId(3), step, at_ms * kMs + 1000, at_ms * kMs + 2000);
  }

  TraceReader Read() const {
    TracedJob job;
    job.plan_id = "late reports";
    TracedRank& rank = job.ranks.emplace_back();
    rank.actors = {Actor("forward", "forward", {Port(3)}, {Port(0)}),
                   Actor("update", "update", {Port(0)}, {Port(1), Port(3)}),
                   Actor("all-reduce norm", "boxing", {Port(1)}, {Port(2)}),
                   Actor("report norm", "metric", {Port(2)}, {})};
    rank.registers.resize(4);
    rank.registers[RegisterId(3)].initial_tokens = 1;  // the weights
    rank.acts = &acts_;
    std::stringstream file;
    EXPECT_EQ(WriteTrace(job, TraceBeginNs(job), file), absl::OkStatus());
    TraceReader reader;
    EXPECT_EQ(reader.Read(file.str()), absl::OkStatus());
    return reader;
  }

 private:
  void Add(ActorId actor, int64_t step, int64_t start, int64_t end) {
    ActRecord& act = acts_.Add();
    act = {};
    act.actor = actor;
    act.step = step;
    act.ready = act.start = start;
    act.end = end;
  }
  ActRing acts_;
};

std::vector<std::pair<int64_t, int64_t>> Milliseconds(const StepTimes& times) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const StepTime& step : times.steps) steps.emplace_back(step.begin / kMs, step.end / kMs);
  return steps;
}

using Steps = std::vector<std::pair<int64_t, int64_t>>;

TEST(StepTimesTest, AStepEndsWithItsLastActThatIsNoReportThoughReportsComeLate) {
  LateReports run;
  run.RunBegins(100);
  for (int64_t step = 0; step < 3; ++step) {
    run.Work(step, 100 + 10 * step);
    if (step > 0) run.Report(step - 1, 110 + 10 * step);
  }
  run.Report(2, 131);
  const StepTimes times = FindStepTimes(run.Read());
  EXPECT_EQ(Milliseconds(times), (Steps{{100, 110}, {110, 120}, {120, 131}}));
  EXPECT_TRUE(times.last_ends_run);
  EXPECT_EQ(times.SumFrom(0), 31 * kMs + 2000);  // the last step ends with the run, its report too
  EXPECT_DOUBLE_EQ(MakeTraceReport(run.Read()).step_ns, (21 * kMs + 2000) / 2.0);
}

TEST(StepTimesTest, RestsBetweenRunsBelongToNoStep) {
  LateReports run;
  for (int64_t at : {100, 500}) {
    const int64_t step = at == 100 ? 0 : 2;
    run.RunBegins(at);
    run.Work(step, at);
    run.Work(step + 1, at + 10);
    run.Report(step, at + 20);
    run.Report(step + 1, at + 21);
  }
  const StepTimes times = FindStepTimes(run.Read());
  EXPECT_EQ(Milliseconds(times), (Steps{{100, 110}, {110, 121}, {500, 510}, {510, 521}}));
  EXPECT_EQ(times.SumFrom(0), 2 * (21 * kMs + 2000));
  EXPECT_EQ(times.Inside(115 * kMs, 505 * kMs, 0), 6 * kMs + 2000 + 5 * kMs);
}

TEST(StepTimesTest, AStepThatWasCutOffIsNone) {
  LateReports run;
  run.RunBegins(100);
  run.Work(0, 100);
  run.Report(0, 110);
  run.Work(1, 111);
  run.Report(1, 121);
  run.Work(2, 122);  // then the job failed
  const StepTimes times = FindStepTimes(run.Read());
  EXPECT_EQ(Milliseconds(times), (Steps{{100, 110}, {110, 121}}));
  EXPECT_FALSE(times.last_ends_run);
}

TEST(StepTimesTest, TheFirstStepKeptBeginsWhereTheOneBeforeEnded) {
  LateReports run(8);  // of 12 acts and a begin
  run.RunBegins(100);
  for (int64_t step = 0; step < 3; ++step) {
    run.Work(step, 100 + 20 * step);
    run.Report(step, 111 + 20 * step);
  }
  EXPECT_EQ(Milliseconds(FindStepTimes(run.Read())), (Steps{{120, 130}, {130, 151}}));
}

TEST(StepRuleTest, WhatOnlyReportsReadIsAReport) {
  using Kind = StepActor::Kind;
  using Ends = IdVector<RecordedActorId, char>;
  const RecordedRegisterId r0(0), r1(1), r2(2);
  // The work makes 0 for the next step and 1; the transfer makes 2 from 1, and the report reads 2.
  const StepActor work{Kind::kWork, {r0}, {r0, r1}}, transfer{Kind::kTransfer, {r1}, {r2}},
      report{Kind::kReport, {r2}, {}};
  EXPECT_EQ(ActorsThatEndSteps({work, transfer, report}, 3), (Ends{1, 0, 0}));
  const StepActor reader{Kind::kWork, {r2}, {}};
  EXPECT_EQ(ActorsThatEndSteps({work, transfer, report, reader}, 3), (Ends{1, 1, 0, 1}));
  // Another rank makes the report: on this rank nobody reads the transfer's token.
  EXPECT_EQ(ActorsThatEndSteps({work, transfer}, 3), (Ends{1, 0}));
  // Work whose result nobody reads is work, since it may change a state in place.
  EXPECT_EQ(ActorsThatEndSteps({StepActor{Kind::kWork, {}, {r0}}}, 1), (Ends{1}));
  EXPECT_EQ(ActorsThatEndSteps({report}, 3), (Ends{1}))
      << "steps of reports alone end with their last act";
}

}  // namespace
}  // namespace weir::trace
