// Tests weights updated every H-th step: the result equals, to the bit, one step with H times the
// micro-batches, on every layout; and a linear model equals the same computation in a plain loop.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

using ::testing::HasSubstr;

constexpr int kEvery = 3;
constexpr int kUpdates = 3;

struct Setting {
  std::string mesh;
  int zero = 0;
  int micro_batches = 2;
  std::string schedule = "1f1b";
  bool recompute = false;
  std::string precision = "f32";
  proto::Runtime::Registers registers = proto::Runtime::SCHEDULE;
  int delay = 0;
};

std::string Text(const Setting& s) {
  return absl::StrCat("mesh ", s.mesh, ", zero ", s.zero, ", ", s.micro_batches, " micro-batches, ",
                      s.schedule, s.recompute ? ", recompute" : "", ", ", s.precision,
                      ", registers ", proto::Runtime::Registers_Name(s.registers), ", delay ",
                      s.delay);
}

// Returns a GPT of `micro_batches` micro-batches of two rows.
proto::Job Gpt(const Setting& setting, int micro_batches, int steps) {
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 16;
  options.heads = 2;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 2 * micro_batches;
  options.training.micro_batches = micro_batches;
  options.training.steps = steps;
  options.training.warmup_steps = 1;
  options.training.learning_rate = 3e-3;
  options.training.zero_stage = setting.zero;
  options.training.schedule = setting.schedule;
  options.training.recompute = setting.recompute;
  options.training.precision = setting.precision;
  proto::Job job = WithMesh(*zoo::GptJob(options), setting.mesh);
  job.mutable_runtime()->set_registers(setting.registers);
  job.mutable_training()->set_gradient_delay(setting.delay);
  return job;
}

absl::StatusOr<TrainRun> Run(const proto::Job& job) {
  TrainRunOptions options;
  options.steps = job.training().steps();
  options.feed = EndlessFeed;
  return Train(job, options);
}

// Compares one step of H times the micro-batches with H steps and one update: the same sums in the
// same order.
void CompareWithOneStep(const Setting& setting) {
  SCOPED_TRACE(Text(setting));
  absl::StatusOr<TrainRun> whole = Run(Gpt(setting, kEvery * setting.micro_batches, kUpdates));
  ASSERT_TRUE(whole.ok()) << whole.status();
  proto::Job job = Gpt(setting, setting.micro_batches, kEvery * kUpdates);
  job.mutable_training()->set_update_every(kEvery);
  absl::StatusOr<TrainRun> parts = Run(job);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(FirstDifferentState(parts->weights, whole->weights), "");
  EXPECT_NE(parts->weights, parts->initial);
  ASSERT_EQ(parts->losses.size(), kEvery * kUpdates);
  ASSERT_EQ(parts->grad_norms.size(), kEvery * kUpdates);
  for (int update = 0; update < kUpdates; ++update) {
    double loss = 0;
    for (int step = 0; step < kEvery; ++step)
      loss += parts->losses[update * kEvery + step] / kEvery;
    EXPECT_NEAR(loss, whole->losses[update], 1e-5 * loss);
    EXPECT_EQ(parts->grad_norms[update * kEvery + kEvery - 1], whole->grad_norms[update]);
  }
}

TEST(UpdateRate, StepsBetweenUpdatesAreMicroBatchesOnEveryLayout) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    for (int zero : {0, 1, 2, 3}) {
      if (zero == 0 || std::string(mesh).starts_with("dp"))
        CompareWithOneStep({.mesh = mesh, .zero = zero});
    }
  }
}

TEST(UpdateRate, StepsOfOneMicroBatchAccumulateToo) {
  for (const char* mesh : {"", "dp=2", "pp=2"}) {
    for (int zero : {0, 1, 2, 3}) {
      if (zero == 0 || std::string(mesh).starts_with("dp"))
        CompareWithOneStep({.mesh = mesh, .zero = zero, .micro_batches = 1});
    }
  }
}

TEST(UpdateRate, SchedulesPrecisionAndRegisterCountsChangeNothing) {
  CompareWithOneStep({.mesh = "pp=2", .schedule = "gpipe"});
  CompareWithOneStep({.mesh = "pp=2", .schedule = "interleaved"});
  CompareWithOneStep({.mesh = "pp=2,dp=2", .zero = 2, .schedule = "zero-bubble"});
  CompareWithOneStep({.mesh = "dp=2", .zero = 3, .recompute = true});
  CompareWithOneStep({.mesh = "dp=2,pp=2", .zero = 1, .precision = "bf16"});
  CompareWithOneStep({.mesh = "pp=2", .precision = "bf16", .registers = proto::Runtime::SOLVED});
  CompareWithOneStep({.mesh = "dp=2,pp=2", .zero = 1, .registers = proto::Runtime::SOLVED});
  CompareWithOneStep({.mesh = "pp=2", .registers = proto::Runtime::ONE});
}

// The gradients under way at the end are among the compared states.
TEST(UpdateRate, DelayedGradientsAreThoseOfOneStepToo) {
  CompareWithOneStep({.mesh = "", .delay = 1});
  CompareWithOneStep({.mesh = "dp=2,tp=2,pp=2", .delay = 2});
  CompareWithOneStep({.mesh = "dp=2,pp=2", .zero = 1, .precision = "bf16", .delay = 1});
  CompareWithOneStep({.mesh = "dp=2", .zero = 2, .micro_batches = 1, .delay = 2});
  CompareWithOneStep({.mesh = "dp=2", .zero = 3, .recompute = true, .delay = 1});
  CompareWithOneStep({.mesh = "pp=2", .schedule = "zero-bubble", .delay = 1});
  CompareWithOneStep(
      {.mesh = "pp=2,dp=2", .zero = 1, .registers = proto::Runtime::SOLVED, .delay = 1});
  CompareWithOneStep({.mesh = "pp=2", .registers = proto::Runtime::ONE, .delay = 1});
}

// ---- a linear model: loss = mean((x w - y)^2), by SGD with momentum ----

constexpr int kRows = 4, kWidth = 3;

constexpr char kLinear[] = R"pb(
  name: "linear"
  graph {
    dim { name: "batch" size: 8 }
    dim { name: "width" size: 3 }
    dim { name: "one" size: 2 }
    function {
      name: "fit"
      input { name: "x" type: "f32[batch, width]" }
      parameter {
        name: "w"
        type: "f32[width, one]"
        init { normal { std: 1 } }
        decay: true
      }
      node { name: "z" op: "matmul" input: "x" input: "w" }
      output: "z"
    }
    function {
      name: "main"
      input { name: "x" type: "f32[batch, width]" }
      input { name: "y" type: "f32[batch, one]" }
      node { name: "fit" op: "call" function: "fit" input: "x" output: "z" }
      node {
        name: "minus"
        op: "scale"
        input: "y"
        attr {
          name: "factor"
          value { f: -1 }
        }
      }
      node { name: "d" op: "add" input: "z" input: "minus" }
      node { name: "squares" op: "mul" input: "d" input: "d" }
      node { name: "loss" op: "reduce_mean" input: "squares" }
      output: "loss"
    }
    main: "main"
  }
  rule { dim: "batch" axis: "dp" }
  rule { dim: "width" axis: "tp" }
  data { synthetic {} }
  training {
    micro_batches: 2
    optimizer { sgd { momentum: 0.9 weight_decay: 0.01 } }
    schedule { learning_rate: 0.05 warmup_steps: 2 }
  }
)pb";

double Sample(const std::string& feed, int64_t row, int64_t column) {
  return std::sin(static_cast<double>(1 + row * 7 + column * 3) * (feed == "x" ? 1.3 : 0.7));
}

class LinearFeed final : public actors::DataFeed {
 public:
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    for (int64_t i = 0; i < slice.shape[0]; ++i) {
      for (int64_t k = 0; k < slice.shape[1]; ++k) {
        const int64_t row = (step * 2 + micro_batch) * kRows + slice.offset[0] + i;
        static_cast<float*>(out)[i * slice.shape[1] + k] =
            static_cast<float>(Sample(feed, row, slice.offset[1] + k));
      }
    }
    return absl::OkStatus();
  }
};

struct Rates {
  int every = 1, phase = 0, delay = 0;
};

// Does the same in a plain loop. Returns the weights after each step.
std::vector<std::vector<double>> PlainLoop(std::vector<double> w, const Rates& rates, int steps) {
  std::vector<std::vector<double>> gathered, after;
  std::vector<double> sum(w.size(), 0), momentum(w.size(), 0);
  int steps_in_sum = 0, updates = 0;
  for (int step = 0; step < steps; ++step) {
    for (int row = step * 2 * kRows; row < (step + 1) * 2 * kRows; ++row) {
      for (int column = 0; column < 2; ++column) {
        double d = -Sample("y", row, column);
        for (int k = 0; k < kWidth; ++k) d += Sample("x", row, k) * w[k * 2 + column];
        for (int k = 0; k < kWidth; ++k)
          sum[k * 2 + column] += 2 * d * Sample("x", row, k) / (2 * kRows * 2);
      }
    }
    ++steps_in_sum;
    if (step % rates.every == rates.phase) {
      for (double& value : sum) value /= steps_in_sum;
      gathered.push_back(sum);
      sum.assign(w.size(), 0);
      steps_in_sum = 0;
      const int used = static_cast<int>(gathered.size()) - 1 - rates.delay;
      if (used >= 0) {
        const double rate = 0.05 * std::min(1.0, (updates + 1) / 2.0);
        for (size_t i = 0; i < w.size(); ++i) {
          const double gradient = gathered[used][i] + 0.01 * w[i];
          momentum[i] = updates == 0 ? gradient : 0.9 * momentum[i] + gradient;
          w[i] -= rate * momentum[i];
        }
        ++updates;
      }
    }
    after.push_back(w);
  }
  return after;
}

void CompareWithPlainLoop(const std::string& mesh, int zero, const Rates& rates) {
  SCOPED_TRACE(absl::StrCat("mesh ", mesh, ", zero ", zero, ", every ", rates.every, ", phase ",
                            rates.phase, ", delay ", rates.delay));
  proto::Job job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kLinear, &job));
  job = WithMesh(job, mesh);
  job.mutable_training()->set_zero_stage(zero);
  job.mutable_training()->set_update_every(rates.every);
  job.mutable_training()->set_update_phase(rates.phase);
  job.mutable_training()->set_gradient_delay(rates.delay);
  std::vector<std::vector<double>> expected;
  for (int steps : {1, 2, 3, 4, 5, 7, 11}) {
    TrainRunOptions options;
    options.steps = steps;
    options.feed = [](const proto::Job&) { return std::make_unique<LinearFeed>(); };
    absl::StatusOr<TrainRun> run = Train(job, options);
    ASSERT_TRUE(run.ok()) << run.status();
    const std::vector<float>& first = run->initial.at("fit.w");
    if (expected.empty()) expected = PlainLoop({first.begin(), first.end()}, rates, 11);
    const std::vector<float>& found = run->weights.at("fit.w");
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[steps - 1][i], 2e-5) << steps << " steps, element " << i;
  }
}

// A gradient that waits for its update keeps its slot while the next gradient is made.
TEST(UpdateRate, SolvedCountsLeaveRoomForWhatLags) {
  for (const int delay : {1, 2}) {
    for (const int phase : {0, 1}) {
      std::map<std::string, std::vector<float>> weights;
      for (const proto::Runtime::Registers registers :
           {proto::Runtime::SCHEDULE, proto::Runtime::SOLVED}) {
        const Setting setting = {.mesh = "dp=2,pp=2",
                                 .zero = 2,
                                 .schedule = "interleaved",
                                 .recompute = true,
                                 .registers = registers,
                                 .delay = delay};
        SCOPED_TRACE(absl::StrCat(Text(setting), ", phase ", phase));
        proto::Job job = Gpt(setting, setting.micro_batches, 8);
        job.mutable_training()->set_update_every(2);
        job.mutable_training()->set_update_phase(phase);
        absl::StatusOr<TrainRun> run = training::Run(job);
        ASSERT_TRUE(run.ok()) << run.status();
        if (!weights.empty()) {
          EXPECT_EQ(FirstDifferentState(run->weights, weights), "");
        }
        weights = run->weights;
      }
    }
  }
}

TEST(UpdateRate, ALinearModelGoesTheWayOfAPlainLoop) {
  for (const Rates& rates :
       {Rates{}, Rates{2, 1}, Rates{2, 0}, Rates{4, 3}, Rates{4, 1}, Rates{3, 0}, Rates{1, 0, 1},
        Rates{1, 0, 3}, Rates{2, 1, 1}, Rates{3, 0, 2}}) {
    CompareWithPlainLoop("", 0, rates);
    CompareWithPlainLoop("pp=2", 0, rates);
    CompareWithPlainLoop("tp=3", 0, rates);
    for (int zero : {0, 1, 2, 3}) CompareWithPlainLoop("dp=2", zero, rates);
  }
}

// ---- refused jobs ----

std::string ErrorOf(const std::string& training,
                    compiler::PlanMode mode = compiler::PlanMode::kTrain) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kLinear, &job));
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(
      absl::StrCat("training { ", training, " }"), &job));
  compiler::CompileOptions options;
  options.mode = mode;
  return std::string(compiler::CompileJob(job, options).status().message());
}

TEST(UpdateRate, BadNumbersAreToldWithTheirField) {
  for (compiler::PlanMode mode : {compiler::PlanMode::kTrain, compiler::PlanMode::kEvaluate}) {
    EXPECT_THAT(
        ErrorOf("update_every: -1", mode),
        HasSubstr("W0545 at training.update_every: expected 1 to 1024, or 0 for 1; found -1"));
    EXPECT_THAT(ErrorOf("update_every: 1025", mode), HasSubstr("W0545"));
    EXPECT_THAT(ErrorOf("gradient_delay: -2", mode),
                HasSubstr("W0545 at training.gradient_delay: expected 0 to 64; found -2"));
    EXPECT_THAT(ErrorOf("update_every: 4 update_phase: 4", mode),
                HasSubstr("W0546 at training.update_phase: expected 0 to 3"));
    EXPECT_THAT(ErrorOf("update_every: 4 update_phase: -1", mode), HasSubstr("W0546"));
    EXPECT_THAT(
        ErrorOf("update_phase: 1", mode),
        HasSubstr(
            "W0546 at training.update_phase: expected 0, as weights are updated in every step"));
  }
  EXPECT_THAT(ErrorOf("steps: 3 update_every: 4"),
              HasSubstr("W0547 at training.steps: expected at least 4"));
  EXPECT_EQ(ErrorOf("steps: 4 update_every: 4"), "");
  EXPECT_EQ(ErrorOf("steps: 3 update_every: 4 update_phase: 2"), "");
  EXPECT_EQ(ErrorOf("steps: 3 update_every: 4", compiler::PlanMode::kEvaluate), "");
}

}  // namespace
}  // namespace weir::training
