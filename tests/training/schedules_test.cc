// Tests four pipeline schedules made of cut, register counts and precedences: their bubbles against
// the formulas, the values that stages hold, and the weights, which equal those of one device to
// the bit.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/rhythm/play_schedule.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tests/training/trace_check.h"
#include "tests/training/train_run.h"
#include "tools/trace/trace_report.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

constexpr int kStages = 4;
constexpr int kMicroBatches = 16;
constexpr int64_t kUnit = 1000;

const std::vector<weir::proto::Pipeline::ScheduleKind> kAll = {
    weir::proto::Pipeline::GPIPE, weir::proto::Pipeline::ONE_F_ONE_B,
    weir::proto::Pipeline::INTERLEAVED, weir::proto::Pipeline::ZERO_BUBBLE};

struct Setting {
  weir::proto::Pipeline::ScheduleKind kind = weir::proto::Pipeline::ONE_F_ONE_B;
  int virtual_stages = 0;
  int stages = kStages;
  int micro_batches = kMicroBatches;
  int layers_per_stage = 4;
};

// Returns a job with blocks in even parts. The embedding goes with the first part and the head with
// the last.
proto::Job PipelineJob(const Setting& setting) {
  zoo::TransformerOptions options;
  options.layers = setting.layers_per_stage * setting.stages;
  options.hidden = 8;
  options.heads = 2;
  options.ffn = 16;
  options.vocab = 16;
  options.sequence = 4;
  options.training.batch = setting.micro_batches;
  options.training.micro_batches = setting.micro_batches;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  const int v =
      setting.kind == weir::proto::Pipeline::INTERLEAVED ? std::max(2, setting.virtual_stages) : 1;
  const int parts = setting.stages * v;
  for (int part = 1; part < parts; ++part)
    job->mutable_pipeline()->add_cut(absl::StrCat("layers.", part * options.layers / parts));
  job->mutable_pipeline()->set_schedule(setting.kind);
  if (setting.kind == weir::proto::Pipeline::INTERLEAVED)
    job->mutable_pipeline()->set_virtual_stages(setting.virtual_stages);
  return WithMesh(*job, absl::StrCat("pp=", setting.stages));
}

// In virtual time forward, gradients of inputs and gradients of weights take a unit each per block.
// Everything else takes nothing.
int64_t Cost(const actors::Plan& plan, const actors::PlanActor& actor) {
  if (!absl::StrContains(actor.function, "layers.")) return 0;
  if (actor.phase == actors::ActorPhase::kForward ||
      actor.phase == actors::ActorPhase::kWeightGradient)
    return kUnit;
  if (actor.phase != actors::ActorPhase::kBackward) return 0;
  for (const actors::PlanActor& other : plan.actors) {
    if (other.phase == actors::ActorPhase::kWeightGradient && other.instance == actor.instance)
      return kUnit;
  }
  return 2 * kUnit;
}

struct Outcome {
  double bubble = 0;
  std::vector<int> in_flight;      // by stage, until the backward pass
  std::vector<int> until_weights;  // until the gradients of weights
  std::vector<int64_t> arena;      // by stage
};

Outcome Play(const Setting& setting) {
  Outcome outcome;
  TrainRunOptions options;
  options.steps = 1;
  options.session.engine = actors::SessionOptions::EngineKind::kSim;
  options.session.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
  options.session.sim_cost_ns = Cost;
  options.inspect = [&](const actors::Session& session) {
    outcome.bubble = MeasuredBubble(session);
    for (int stage = 0; stage < setting.stages; ++stage) {
      outcome.in_flight.push_back(MostInFlight(session, RankId(stage)));
      outcome.until_weights.push_back(
          MostInFlight(session, RankId(stage), actors::ActorPhase::kWeightGradient));
      outcome.arena.push_back(session.plan(RankId(stage)).arena_bytes);
    }
  };
  absl::StatusOr<TrainRun> run = Train(PipelineJob(setting), options);
  EXPECT_TRUE(run.ok()) << run.status();
  return outcome;
}

void ExpectSameBits(const TrainRun& many, const TrainRun& one) {
  EXPECT_EQ(many.losses, one.losses);
  EXPECT_EQ(many.grad_norms, one.grad_norms);
  EXPECT_EQ(FirstDifferentState(many.weights, one.weights), "");
}

absl::StatusOr<trace::TraceReport> ReportOf(const actors::Session& session) {
  const std::string path = TemporaryPath("schedules.pftrace");
  if (absl::Status written = session.WriteTrace(path); !written.ok()) return written;
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return trace::ReadTraceReport(bytes.str());
}

double Formula(int stages, int micro_batches, int parts_per_stage) {
  const double p = stages, m = micro_batches, v = parts_per_stage;
  return (p - 1) / v / (m + (p - 1) / v);
}

TEST(Schedules, GPipeHasTheBubbleOfTheFormulaAndHoldsAllMicroBatches) {
  const Outcome outcome = Play({.kind = weir::proto::Pipeline::GPIPE});
  EXPECT_NEAR(outcome.bubble, Formula(kStages, kMicroBatches, 1), 1e-9);
  EXPECT_EQ(outcome.in_flight, std::vector<int>(kStages, kMicroBatches));
}

TEST(Schedules, OneForwardOneBackwardHasTheSameBubbleAndHoldsStagesMinusStage) {
  const Outcome outcome = Play({});
  EXPECT_NEAR(outcome.bubble, Formula(kStages, kMicroBatches, 1), 1e-9);
  EXPECT_EQ(outcome.in_flight, (std::vector<int>{4, 3, 2, 1}));
}

TEST(Schedules, InterleavingDividesTheBubbleByThePartsOfAStage) {
  for (int v : {2, 4}) {
    for (int stages : {2, 4}) {
      const Outcome outcome =
          Play({.kind = weir::proto::Pipeline::INTERLEAVED, .virtual_stages = v, .stages = stages});
      EXPECT_NEAR(outcome.bubble, Formula(stages, kMicroBatches, v), 1e-9)
          << stages << " stages, " << v << " parts each";
    }
  }
}

TEST(Schedules, ZeroBubbleHasLessThanHalfTheBubbleOfOneForwardOneBackward) {
  for (int stages : {2, 4}) {
    const Outcome split = Play({.kind = weir::proto::Pipeline::ZERO_BUBBLE, .stages = stages});
    const double p = stages, m = kMicroBatches;
    // An act of weights that has begun may delay a block's gradient once.
    EXPECT_GE(split.bubble, (p - 1) / (3 * m + p - 1) - 1e-9) << stages << " stages";
    EXPECT_LE(split.bubble, 1.1 * (p - 1) / (3 * m + p - 1)) << stages << " stages";
    EXPECT_LT(split.bubble, Formula(stages, kMicroBatches, 1) / 2);
    for (int held : split.until_weights) EXPECT_LE(held, stages);
  }
}

TEST(Schedules, AllGiveTheWeightsOfOneDeviceToTheBit) {
  Setting setting{.micro_batches = 8, .layers_per_stage = 2};
  TrainRunOptions options;
  options.steps = 4;
  proto::Job whole = PipelineJob(setting);
  whole.clear_pipeline();
  absl::StatusOr<TrainRun> one = Train(WithMesh(whole, ""), options);
  ASSERT_TRUE(one.ok()) << one.status();
  for (weir::proto::Pipeline::ScheduleKind kind : kAll) {
    setting.kind = kind;
    SCOPED_TRACE(weir::proto::Pipeline::ScheduleKind_Name(kind));
    absl::StatusOr<TrainRun> run = Train(PipelineJob(setting), options);
    ASSERT_TRUE(run.ok()) << run.status();
    ExpectSameBits(*run, *one);
  }
}

TEST(Schedules, CombineWithEveryKindOfParallelism) {
  struct Case {
    const char* mesh;
    int zero;
    zoo::SequenceParallel sequence;
  };
  const std::vector<Case> cases = {{"dp=2,pp=2", 0, zoo::SequenceParallel::kNone},
                                   {"tp=2,pp=2", 0, zoo::SequenceParallel::kNone},
                                   {"dp=2,pp=2", 1, zoo::SequenceParallel::kNone},
                                   {"dp=2,pp=2", 2, zoo::SequenceParallel::kNone},
                                   {"dp=2,pp=2", 3, zoo::SequenceParallel::kNone},
                                   {"dp=2,tp=2,pp=2", 3, zoo::SequenceParallel::kMegatron},
                                   {"sp=2,pp=2", 0, zoo::SequenceParallel::kUlysses},
                                   {"dp=2,tp=2,pp=2", 0, zoo::SequenceParallel::kNone}};
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 16;
  options.heads = 4;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 8;
  options.training.micro_batches = 4;
  TrainRunOptions run_options;
  run_options.steps = 3;
  for (const Case& c : cases) {
    options.sequence_parallel = c.sequence;
    absl::StatusOr<proto::Job> job = zoo::GptJob(options);
    ASSERT_TRUE(job.ok()) << job.status();
    absl::StatusOr<TrainRun> one = Train(WithMesh(*job, ""), run_options);
    ASSERT_TRUE(one.ok()) << one.status();
    job->mutable_training()->set_zero_stage(c.zero);
    absl::StatusOr<TrainRun> first = Train(WithMesh(*job, c.mesh), run_options);
    ASSERT_TRUE(first.ok()) << first.status();
    for (weir::proto::Pipeline::ScheduleKind kind : kAll) {
      SCOPED_TRACE(absl::StrCat(c.mesh, " zero ", c.zero, " ",
                                weir::proto::Pipeline::ScheduleKind_Name(kind)));
      job->mutable_pipeline()->set_schedule(kind);
      absl::StatusOr<TrainRun> run = Train(WithMesh(*job, c.mesh), run_options);
      ASSERT_TRUE(run.ok()) << run.status();
      ExpectSameBits(*run, *first);
      for (int step = 0; step < run_options.steps; ++step) {
        EXPECT_NEAR(run->losses[step], one->losses[step], 1e-5 * one->losses[step]);
      }
    }
  }
}

TEST(Schedules, NoInterleavingOfActsHoldsMoreThanPlannedOrChangesABit) {
  for (weir::proto::Pipeline::ScheduleKind kind : kAll) {
    Setting setting{.kind = kind, .micro_batches = 6, .layers_per_stage = 2};
    TrainRunOptions options;
    options.steps = 2;
    absl::StatusOr<TrainRun> first;
    for (int seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(absl::StrCat(weir::proto::Pipeline::ScheduleKind_Name(kind), " seed ", seed));
      options.session.engine = actors::SessionOptions::EngineKind::kSim;
      options.session.sim.seed = static_cast<uint64_t>(seed);
      absl::StatusOr<TrainRun> run = Train(PipelineJob(setting), options);
      ASSERT_TRUE(run.ok()) << run.status();
      if (seed == 1) first = run;
      ExpectSameBits(*run, *first);
    }
  }
}

TEST(Schedules, TheCompilersPlayHasTheBubbleOfTheRun) {
  for (weir::proto::Pipeline::ScheduleKind kind : kAll) {
    for (int micro_batches : {3, 8, 16}) {
      const Setting setting{.kind = kind, .micro_batches = micro_batches};
      absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
          compiler::CompileJob(PipelineJob(setting), {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      const compiler::PipelineSchedule& schedule = (*plan)->schedule;
      const double played = compiler::PlaySchedule(schedule, compiler::EvenCosts(schedule)).bubble;
      // A part of the run has several actors, so weight gradients fill gaps in smaller pieces.
      const double tolerance =
          kind == weir::proto::Pipeline::ZERO_BUBBLE || micro_batches % kStages != 0 ? 0.03 : 1e-9;
      EXPECT_NEAR(Play(setting).bubble, played, tolerance)
          << weir::proto::Pipeline::ScheduleKind_Name(kind) << ", " << micro_batches;
    }
  }
}

// From the second step on, data lies ready at the start, so that every act that may begin can.
TEST(Schedules, LaterStepsHaveTheBubbleOfTheFormulaInTheReportOfTheirTrace) {
  for (weir::proto::Pipeline::ScheduleKind kind : kAll) {
    TrainRunOptions options;
    options.steps = 3;
    options.session.engine = actors::SessionOptions::EngineKind::kSim;
    options.session.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
    options.session.sim_cost_ns = Cost;
    absl::StatusOr<trace::TraceReport> report = absl::UnknownError("not inspected");
    options.inspect = [&report](const actors::Session& session) { report = ReportOf(session); };
    const absl::StatusOr<TrainRun> run = Train(PipelineJob({.kind = kind}), options);
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->first_step, 1);
    EXPECT_EQ(report->last_step, 2);
    const double formula =
        kind == weir::proto::Pipeline::ZERO_BUBBLE
            ? 3.0 / (3 * kMicroBatches + 3)
            : Formula(kStages, kMicroBatches, kind == weir::proto::Pipeline::INTERLEAVED ? 2 : 1);
    // As for one step, an act of weights that has begun may delay a gradient.
    EXPECT_NEAR(report->pipeline_bubble, formula,
                kind == weir::proto::Pipeline::ZERO_BUBBLE ? 0.1 * formula : 1e-9)
        << weir::proto::Pipeline::ScheduleKind_Name(kind);
  }
}

TEST(Schedules, TheChartShowsWhoDoesWhatWhen) {
  const Setting setting{.stages = 2, .micro_batches = 3, .layers_per_stage = 2};
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
      compiler::CompileJob(PipelineJob(setting), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const compiler::PipelineSchedule& schedule = (*plan)->schedule;
  EXPECT_EQ(
      compiler::DrawSchedule(compiler::PlaySchedule(schedule, compiler::EvenCosts(schedule)), 100)
          .text,
      "  stage 0 F0F1····B0B0F2B1B1··B2B2\n"
      "  stage 1 ··F0B0B0F1B1B1F2B2B2····\n");
}

}  // namespace
}  // namespace weir::training
