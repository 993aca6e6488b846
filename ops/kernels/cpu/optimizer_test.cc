#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"
#include "runtime/base/schedule.h"

namespace weir::kernels {
namespace {

const int64_t kSizes[] = {0, 1, 15, 1000, 40001};

TestTensor Scalar(double value) { return TensorOf(DType::kF32, {}, {Stored(DType::kF32, value)}); }

TEST(AdamWTest, FollowsPyTorchOverSeveralSteps) {
  Attributes attrs{{"beta1", 0.9},
                   {"beta2", 0.95},
                   {"epsilon", 1e-8},
                   {"weight_decay", 0.1},
                   {"learning_rate", 3e-3},
                   {"warmup_steps", int64_t{2}},
                   {"decay", std::string("cosine")},
                   {"decay_steps", int64_t{6}},
                   {"min_learning_rate", 1e-4}};
  LearningRateSchedule schedule = LearningRateSchedule::FromAttributes(attrs);
  for (int64_t n : kSizes) {
    TestTensor w = RandomTensor(DType::kF32, {n}, 1);
    TestTensor m = TensorOf(DType::kF32, {n}, std::vector<double>(n, 0)), v = m;
    std::vector<double> w_ref = w.values, m_ref = m.values, v_ref = v.values;
    for (int64_t step = 0; step < 5; ++step) {
      TestTensor g = RandomTensor(DType::kF32, {n}, 10 + step), scale = Scalar(0.5);
      RunOptions options;
      options.step = step;
      options.initial_outputs = {w, m, v};
      auto out = RunKernel("adamw", attrs, {g, scale}, {w.slice, m.slice, v.slice}, options);
      const double rate = schedule.At(step), t = static_cast<double>(step) + 1;
      for (int64_t i = 0; i < n; ++i) {
        double grad = 0.5 * g[i];
        w_ref[i] *= 1 - rate * 0.1;
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * grad;
        v_ref[i] = 0.95 * v_ref[i] + 0.05 * grad * grad;
        double denominator = std::sqrt(v_ref[i]) / std::sqrt(1 - std::pow(0.95, t)) + 1e-8;
        w_ref[i] -= rate / (1 - std::pow(0.9, t)) * m_ref[i] / denominator;
      }
      ExpectClose(out[0], w_ref, 0.1);
      ExpectClose(out[1], m_ref, 0.1);
      ExpectClose(out[2], v_ref, 0.1);
      w = out[0], m = out[1], v = out[2];
    }
  }
}

TEST(SgdTest, FollowsPyTorchWithMomentumAndWeightDecay) {
  for (int64_t n : kSizes) {
    Attributes attrs{{"momentum", 0.9}, {"weight_decay", 0.01}, {"learning_rate", 0.1}};
    TestTensor w = RandomTensor(DType::kF32, {n}, 1), buffer = RandomTensor(DType::kF32, {n}, 2);
    std::vector<double> w_ref = w.values, b_ref = buffer.values;
    for (int64_t step = 0; step < 3; ++step) {
      TestTensor g = RandomTensor(DType::kF32, {n}, 10 + step), scale = Scalar(0.25);
      RunOptions options;
      options.step = step;
      options.initial_outputs = {w, buffer};
      auto out = RunKernel("sgd", attrs, {g, scale}, {w.slice, w.slice}, options);
      for (int64_t i = 0; i < n; ++i) {
        double grad = 0.25 * g[i] + 0.01 * w_ref[i];
        b_ref[i] = step == 0
                       ? grad
                       : 0.9 * b_ref[i] + grad;  // what the buffer held at first does not count
        w_ref[i] -= 0.1 * b_ref[i];
      }
      ExpectClose(out[0], w_ref, 0.1);
      ExpectClose(out[1], b_ref, 0.1);
      w = out[0], buffer = out[1];
    }
  }
}

TEST(SgdTest, NeedsNoBufferWithoutMomentum) {
  TestTensor w = RandomTensor(DType::kF32, {100}, 1), g = RandomTensor(DType::kF32, {100}, 2);
  RunOptions options;
  options.initial_outputs = {w};
  auto out = RunKernel("sgd", {{"learning_rate", 0.5}}, {g, Scalar(1)}, {w.slice}, options);
  std::vector<double> expected;
  for (int64_t i = 0; i < 100; ++i) expected.push_back(w[i] - 0.5 * g[i]);
  ExpectClose(out[0], expected, 0.1);
  KernelSpec spec{.op = "sgd",
                  .attrs = {{"momentum", 0.9}},
                  .inputs = {g.slice, Scalar(1).slice},
                  .outputs = {w.slice}};
  EXPECT_FALSE(KernelRegistry::Create("cpu", spec).ok());
}

TEST(SumSquaresTest, SumsOverAllInputs) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    TestInputs inputs{RandomTensor(dtype, {100001}, 1), RandomTensor(dtype, {0}, 2),
                      RandomTensor(dtype, {3, 5}, 3), RandomTensor(dtype, {}, 4),
                      RandomTensor(dtype, {70000}, 5)};
    double expected = 0;
    for (const auto& input : inputs) {
      for (double value : input->values) expected += value * value;
    }
    auto total = RunKernel("sum_squares", {}, inputs, {TensorSlice::Whole(DType::kF32, {})});
    ExpectClose(total[0], {expected});
  }
}

TEST(ClipScaleTest, ScalesOnlyNormsAboveTheLimit) {
  TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  for (double total : {0.0, 0.25, 4.0, 100.0}) {
    for (double clip : {0.0, 1.0, 3.0}) {
      auto out = RunKernel("clip_scale", {{"clip_norm", clip}}, {Scalar(total)}, {scalar, scalar});
      double norm = std::sqrt(total);
      ExpectClose(out[0], {clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0}, 0.1);
      ExpectClose(out[1], {norm}, 0.1);
    }
  }
}

TEST(ClipScaleTest, ALossScaleIsTakenOff) {
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  for (double clip : {0.0, 1.0}) {
    const double norm = 3;
    const double expected = (clip > 0 ? clip / (norm + 1e-6) : 1.0) / 1024;
    const double total = (norm * 1024) * (norm * 1024);
    auto operand = RunKernel("clip_scale", {{"clip_norm", clip}}, {Scalar(total), Scalar(1024)},
                             {scalar, scalar});
    auto attribute = RunKernel("clip_scale", {{"clip_norm", clip}, {"loss_scale", 1024.0}},
                               {Scalar(total)}, {scalar, scalar});
    for (const auto& out : {operand, attribute}) {
      ExpectClose(out[0], {expected}, 0.1);
      ExpectClose(out[1], {norm}, 0.1);
    }
  }
}

TEST(ClipScaleTest, ALossScaleIsOneNumber) {
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  KernelSpec spec;
  spec.op = "clip_scale";
  spec.attrs = {{"clip_norm", 1.0}};
  spec.inputs = {scalar, scalar};
  spec.outputs = {scalar, scalar};
  EXPECT_TRUE(KernelRegistry::Create(DeviceOfTests(), spec).ok());
  spec.inputs[1] = TensorSlice::Whole(DType::kF32, {2});
  EXPECT_FALSE(KernelRegistry::Create(DeviceOfTests(), spec).ok());
}

TEST(AdaptLossScaleTest, FollowsTheRuleOfGradScaler) {
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  const Attributes attrs{{"growth", 4.0}, {"backoff", 0.25}, {"growth_interval", int64_t{2}}};
  TestTensor factor = Scalar(64), steps = Scalar(0);
  // Nothing changes after -2.
  const double scales[] = {0.5, 1, 1, -2, -1, 1, -2, -1, 0, 1};
  const double factors[] = {64, 256, 256, 256, 64, 64, 64, 16, 16, 64};
  const double counts[] = {1, 0, 1, 1, 0, 1, 1, 0, 1, 0};
  for (size_t i = 0; i < std::size(scales); ++i) {
    RunOptions options;
    options.initial_outputs = {factor, steps};
    auto out = RunKernel("adapt_loss_scale", attrs, {Scalar(scales[i])}, {scalar, scalar}, options);
    factor = out[0], steps = out[1];
    EXPECT_EQ(factor[0], factors[i]) << i;
    EXPECT_EQ(steps[0], counts[i]) << i;
  }
}

TEST(AdaptLossScaleTest, KeepsTheFactorAboveAFloor) {
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  const Attributes attrs{{"growth", 2.0}, {"backoff", 0.5}, {"growth_interval", int64_t{2}}};
  const TestTensor overflow = Scalar(-1);
  const double from[] = {0x1p-22, 0x1p-23, 0x1p-24, 0x1p-30};
  const double to[] = {0x1p-23, 0x1p-24, 0x1p-24, 0x1p-30};
  for (size_t i = 0; i < std::size(from); ++i) {
    RunOptions options;
    options.initial_outputs = {Scalar(from[i]), Scalar(0)};
    EXPECT_EQ(RunKernel("adapt_loss_scale", attrs, {overflow}, {scalar, scalar}, options)[0][0],
              to[i]);
  }
}

// The operands of one step of clip_scale with a loss scale that adapts.
struct AdaptingStep {
  float total, loss_scale, loss;
};

// Returns the scales that one kernel makes of one total after another; of the totals, loss scales
// and losses of `steps` if there are any.
std::vector<float> ScalesOf(const std::string& on_nonfinite, double clip_norm,
                            std::vector<float> totals,
                            const std::vector<AdaptingStep>& steps = {}) {
  for (const AdaptingStep& step : steps) totals.push_back(step.total);
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  KernelSpec spec;
  spec.op = "clip_scale";
  spec.attrs = {{"clip_norm", clip_norm}, {"on_nonfinite", on_nonfinite}};
  spec.inputs.assign(steps.empty() ? 1 : 3, scalar);
  spec.outputs = {scalar, scalar};
  auto kernel = KernelRegistry::Create("cpu", spec);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  std::vector<float> scales;
  for (float total : totals) {
    float scale = 0, norm = 0;
    AdaptingStep step = {};
    if (!steps.empty()) step = steps[scales.size()];
    const void* inputs[] = {&total, &step.loss_scale, &step.loss};
    void* outputs[] = {&scale, &norm};
    KernelArgs args;
    args.inputs = absl::MakeConstSpan(inputs, spec.inputs.size());
    args.outputs = outputs;
    args.step = static_cast<int64_t>(scales.size());
    EXPECT_EQ((*kernel)->Run(args, {}), absl::OkStatus());
    EXPECT_EQ(std::isfinite(norm), std::isfinite(total)) << "the norm is told as it is";
    scales.push_back(scale);
  }
  return scales;
}

TEST(ClipScaleTest, ANormThatIsNotFiniteLeavesUpdatesOut) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (double clip : {0.0, 1.0}) {
    for (float bad : {nan, infinity}) {
      EXPECT_EQ(ScalesOf("stop", clip, {1.0f / 4, bad, 1.0f / 4}), (std::vector<float>{1, -1, -1}));
      EXPECT_EQ(ScalesOf("skip", clip, {1.0f / 4, bad, 1.0f / 4}), (std::vector<float>{1, -1, 1}));
    }
  }
  EXPECT_EQ(ScalesOf("continue", 0, {1.0f / 4, nan, infinity}), (std::vector<float>{1, 1, 1}));
  EXPECT_TRUE(std::isnan(ScalesOf("continue", 1, {nan})[0]));
}

TEST(ClipScaleTest, WithALossScaleThatAdaptsTheLossTellsErrorsFromOverflows) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const auto scales_of = [](const char* on_nonfinite, const std::vector<AdaptingStep>& steps) {
    return ScalesOf(on_nonfinite, 0, {}, steps);
  };
  const AdaptingStep fine = {1, 2, 1}, overflow = {infinity, 2, 1},
                     at_the_limit = {nan, 0x1p-20f, 1}, too_small = {nan, 0x1p-21f, 1};
  for (const char* on_nonfinite : {"stop", "skip", "continue"}) {
    EXPECT_EQ(scales_of(on_nonfinite, {fine, overflow, at_the_limit, fine}),
              (std::vector<float>{0.5, -1, -1, 0.5}));
  }
  for (const float bad : {nan, infinity, -infinity}) {
    const AdaptingStep bad_loss = {1, 2, bad}, all_bad = {nan, 2, bad};
    EXPECT_EQ(scales_of("stop", {fine, bad_loss, fine, overflow}),
              (std::vector<float>{0.5, -2, -2, -2}));
    EXPECT_EQ(scales_of("stop", {fine, overflow, all_bad, overflow, fine}),
              (std::vector<float>{0.5, -1, -2, -2, -2}));
    EXPECT_EQ(scales_of("skip", {bad_loss, all_bad, fine}), (std::vector<float>{0.5, -2, 0.5}));
    EXPECT_EQ(scales_of("continue", {bad_loss, all_bad, fine}), (std::vector<float>{0.5, -2, 0.5}));
  }
  EXPECT_EQ(scales_of("stop", {too_small, fine}), (std::vector<float>{-2, -2}));
  EXPECT_EQ(scales_of("skip", {too_small, {1, 0x1p-21f, 1}}), (std::vector<float>{-1, 0x1p21f}));
}

TEST(ClipScaleTest, OneStepIsAlikeOnEveryDevice) {
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const auto scale_of = [&](const char* on_nonfinite, double total, double factor, double loss) {
    return RunKernel("clip_scale",
                     {{"clip_norm", 0.0}, {"on_nonfinite", std::string(on_nonfinite)}},
                     {Scalar(total), Scalar(factor), Scalar(loss)}, {scalar, scalar})[0][0];
  };
  EXPECT_EQ(scale_of("stop", 1, 2, 1), 0.5);
  EXPECT_EQ(scale_of("stop", infinity, 2, 1), -1);
  EXPECT_EQ(scale_of("stop", nan, 0x1p-21, 1), -2);
  EXPECT_EQ(scale_of("stop", 1, 2, nan), -2);
  EXPECT_EQ(scale_of("skip", 1, 2, -infinity), 0.5);
  EXPECT_EQ(scale_of("continue", nan, 2, -infinity), -2);
  EXPECT_EQ(scale_of("continue", nan, 2, 1), -1);
}

TEST(UpdateTest, AScaleBelowZeroWritesNothing) {
  const std::vector<double> weights = {1, -2, 3}, gradient(3, std::nan("")), m = {0.5, 0.25, 0},
                            v = {1, 2, 0.5};
  const TensorSlice like = TensorSlice::Whole(DType::kF32, {3});
  for (const char* op : {"adamw", "sgd"}) {
    const bool adam = std::string(op) == "adamw";
    KernelSpec spec;
    spec.op = op;
    spec.attrs = adam ? Attributes{} : Attributes{{"momentum", 0.9}};
    spec.inputs = {like, TensorSlice::Whole(DType::kF32, {})};
    spec.outputs.assign(adam ? 3 : 2, like);
    auto kernel = KernelRegistry::Create("cpu", spec);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    alignas(64) float g[3], state[3][16];
    const std::vector<const std::vector<double>*> values = {&weights, &m, &v};
    for (int i = 0; i < 3; ++i) {
      g[i] = static_cast<float>(gradient[i]);
      for (int k = 0; k < 3; ++k) state[k][i] = static_cast<float>((*values[k])[i]);
    }
    const float scale = adam ? -1 : -2;
    const void* inputs[] = {g, &scale};
    void* outputs[] = {state[0], state[1], state[2]};
    device::ThreadTeam team(1);
    KernelArgs args;
    args.inputs = inputs;
    args.outputs = absl::MakeSpan(outputs, adam ? 3 : 2);
    args.step = 4;
    EXPECT_EQ((*kernel)->Run(args, {&team, nullptr}), absl::OkStatus());
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) EXPECT_EQ(state[k][i], static_cast<float>((*values[k])[i])) << op;
    }
  }
}

}  // namespace
}  // namespace weir::kernels
