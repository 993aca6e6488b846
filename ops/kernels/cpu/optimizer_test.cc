#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"
#include "runtime/base/schedule.h"

namespace weir {
namespace {

const int64_t kSizes[] = {0, 1, 15, 1000, 40001};

TestTensor Scalar(double value) { return TensorOf(DType::kF32, {}, {Stored(DType::kF32, value)}); }

TEST(AdamWTest, FollowsPyTorchOverSeveralSteps) {
  Attributes attrs{{"beta1", 0.9},   {"beta2", 0.95},          {"epsilon", 1e-8},   {"weight_decay", 0.1},
                   {"learning_rate", 3e-3}, {"warmup_steps", int64_t{2}}, {"decay", std::string("cosine")},
                   {"decay_steps", int64_t{6}}, {"min_learning_rate", 1e-4}};
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
        b_ref[i] = step == 0 ? grad : 0.9 * b_ref[i] + grad;  // what the buffer held at first does not count
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
  KernelSpec spec{.op = "sgd", .attrs = {{"momentum", 0.9}}, .inputs = {g.slice, Scalar(1).slice}, .outputs = {w.slice}};
  EXPECT_FALSE(KernelRegistry::Create("cpu", spec).ok());
}

TEST(SumSquaresTest, SumsOverAllInputs) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TestInputs inputs{RandomTensor(dtype, {100001}, 1), RandomTensor(dtype, {0}, 2), RandomTensor(dtype, {3, 5}, 3),
                      RandomTensor(dtype, {}, 4), RandomTensor(dtype, {70000}, 5)};
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

}  // namespace
}  // namespace weir
