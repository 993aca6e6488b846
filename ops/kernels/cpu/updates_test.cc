// Compares the ops of optimisers with formulas in double precision, over several updates.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

const int64_t kSizes[] = {0, 1, 15, 1000, 40001};
constexpr double kScale = 0.5;

TestTensor Scalar(double value) { return TensorOf(DType::kF32, {}, {Stored(DType::kF32, value)}); }
TestTensor Zeros(Shape shape) {
  const auto n = static_cast<size_t>(NumElements(shape));
  return TensorOf(DType::kF32, std::move(shape), std::vector<double>(n, 0));
}
TestTensor Squared(TestTensor tensor) {
  for (double& value : tensor.values) value = Stored(DType::kF32, value * value + 0.1);
  return tensor;
}

TEST(LionTest, MovesByTheRateInTheDirectionOfASign) {
  const Attributes attrs{
      {"beta1", 0.9}, {"beta2", 0.98}, {"weight_decay", 0.1}, {"learning_rate", 0.01}};
  for (int64_t n : kSizes) {
    TestTensor w = RandomTensor(DType::kF32, {n}, 1), m = Zeros({n});
    std::vector<double> w_ref = w.values, m_ref = m.values;
    for (int64_t step = 0; step < 4; ++step) {
      const TestTensor g = RandomTensor(DType::kF32, {n}, 10 + step);
      RunOptions options;
      options.step = step;
      options.initial_outputs = {w, m};
      const auto out = RunKernel("lion", attrs, {g, Scalar(kScale)}, {w.slice, m.slice}, options);
      for (int64_t i = 0; i < n; ++i) {
        const double way = 0.9 * m_ref[i] + 0.1 * kScale * g[i];
        w_ref[i] = w_ref[i] * (1 - 0.01 * 0.1) - 0.01 * (way > 0 ? 1 : way < 0 ? -1 : 0);
        m_ref[i] = 0.98 * m_ref[i] + 0.02 * kScale * g[i];
      }
      ExpectClose(out[0], w_ref, 0.1);
      ExpectClose(out[1], m_ref, 0.1);
      w = out[0], m = out[1];
    }
  }
}

TEST(LionTest, AGradientOfZerosMovesNothingAtFirst) {
  const TestTensor w = RandomTensor(DType::kF32, {3}, 1);
  RunOptions options;
  options.initial_outputs = {w, Zeros({3})};
  const auto out = RunKernel("lion", {{"learning_rate", 0.01}}, {Zeros({3}), Scalar(1)},
                             {w.slice, w.slice}, options);
  ExpectEqualValues(out[0], w.values);
}

TEST(AdamDirectionTest, IsTheDirectionOfAdamWWithTheDecayOfTheWeight) {
  const Attributes attrs{{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-6}, {"weight_decay", 0.1}};
  for (int64_t n : kSizes) {
    TestTensor m = Zeros({n}), v = m;
    std::vector<double> m_ref = m.values, v_ref = v.values;
    for (int64_t step = 0; step < 4; ++step) {
      const TestTensor g = RandomTensor(DType::kF32, {n}, 10 + step),
                       w = RandomTensor(DType::kF32, {n}, 20 + step);
      RunOptions options;
      options.step = step;
      options.initial_outputs = {w, m, v};
      const auto out = RunKernel("adam_direction", attrs, {g, Scalar(kScale), w},
                                 {w.slice, m.slice, v.slice}, options);
      std::vector<double> direction;
      const double t = static_cast<double>(step) + 1;
      for (int64_t i = 0; i < n; ++i) {
        const double grad = kScale * g[i];
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * grad;
        v_ref[i] = 0.95 * v_ref[i] + 0.05 * grad * grad;
        direction.push_back(m_ref[i] / (1 - std::pow(0.9, t)) /
                                (std::sqrt(v_ref[i] / (1 - std::pow(0.95, t))) + 1e-6) +
                            0.1 * w[i]);
      }
      ExpectClose(out[0], direction);
      ExpectClose(out[1], m_ref, 0.1);
      ExpectClose(out[2], v_ref, 0.1);
      m = out[1], v = out[2];
    }
  }
}

TEST(MomentumDirectionTest, LooksAheadUnlessToldNotTo) {
  for (const bool nesterov : {true, false}) {
    TestTensor m = Zeros({1000});
    std::vector<double> m_ref = m.values;
    for (int64_t step = 0; step < 3; ++step) {
      const TestTensor g = RandomTensor(DType::kF32, {1000}, 10 + step);
      RunOptions options;
      options.step = step;
      options.initial_outputs = {g, m};
      const auto out = RunKernel("momentum_direction", {{"momentum", 0.9}, {"nesterov", nesterov}},
                                 {g, Scalar(kScale)}, {m.slice, m.slice}, options);
      std::vector<double> direction;
      for (int64_t i = 0; i < 1000; ++i) {
        const double grad = kScale * g[i];
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * grad;
        direction.push_back(nesterov ? 0.9 * m_ref[i] + 0.1 * grad : m_ref[i]);
      }
      ExpectClose(out[0], direction, 0.1);
      ExpectClose(out[1], m_ref, 0.1);
      m = out[1];
    }
  }
}

TEST(MomentOfSquaresTest, WeighsNewSquaresByAPowerOfTheUpdate) {
  TestTensor moment = RandomTensor(DType::kF32, {100}, 1);
  std::vector<double> reference = moment.values;
  for (int64_t step = 0; step < 4; ++step) {
    const TestTensor squares = Squared(RandomTensor(DType::kF32, {100}, 10 + step));
    RunOptions options;
    options.step = step;
    options.initial_outputs = {moment, moment};
    const auto out = RunKernel("moment_of_squares", {{"beta2_decay", -0.8}, {"count", 4.0}},
                               {squares, Scalar(kScale)}, {moment.slice, moment.slice}, options);
    const double share = std::pow(static_cast<double>(step) + 1, -0.8);
    for (int64_t i = 0; i < 100; ++i)
      reference[i] += share * (squares[i] * kScale * kScale / 4 - reference[i]);
    ExpectClose(out[0], reference, 0.1);
    ExpectEqualValues(out[0], out[1].values);
    moment = out[1];
  }
}

TEST(AdafactorDirectionTest, DividesByTheRootOfRowTimesColumn) {
  const Shape shape{3, 7, 11};
  const TestTensor g = RandomTensor(DType::kF32, shape, 1),
                   rows = Squared(RandomTensor(DType::kF32, {3, 7}, 2)),
                   columns = Squared(RandomTensor(DType::kF32, {3, 11}, 3));
  std::vector<double> totals(3, 0), expected;
  for (int64_t i = 0; i < 21; ++i) totals[i / 7] += rows[i];
  const TestTensor total = TensorOf(DType::kF32, {3},
                                    {Stored(DType::kF32, totals[0]), Stored(DType::kF32, totals[1]),
                                     Stored(DType::kF32, totals[2])});
  for (int64_t i = 0; i < 231; ++i) {
    const double moment = rows[i / 11] * columns[i / 77 * 11 + i % 11] / (total[i / 77] / 7);
    expected.push_back(kScale * g[i] / std::sqrt(moment));
  }
  const auto out = RunKernel("adafactor_direction", {{"count", 7.0}},
                             {g, Scalar(kScale), rows, columns, total}, {g.slice});
  ExpectClose(out[0], expected);
}

TEST(AdafactorDirectionTest, AGradientOfZerosGivesZeros) {
  for (const double epsilon : {1e-7, 0.0}) {
    const TestTensor zeros = Zeros({4, 5});
    const auto matrix =
        RunKernel("adafactor_direction", {{"epsilon1", epsilon}, {"count", 4.0}},
                  {zeros, Scalar(1), Zeros({4}), Zeros({5}), Zeros({})}, {zeros.slice});
    ExpectEqualValues(matrix[0], zeros.values);
    const auto vector = RunKernel("adafactor_direction", {{"epsilon1", epsilon}},
                                  {zeros, Scalar(1), zeros}, {zeros.slice});
    ExpectEqualValues(vector[0], zeros.values);
  }
}

TEST(WeightStepTest, ScalesTheStepByBothNorms) {
  const TestTensor w = RandomTensor(DType::kF32, {1000}, 1),
                   direction = RandomTensor(DType::kF32, {1000}, 2);
  struct Case {
    std::string by;
    double weight_squares, direction_squares, length;
  };
  // The rate of the update is 0.1, but at most 1 / sqrt(4) for adafactor.
  const std::vector<Case> cases = {
      {"plain", 0, 0, 0.1 * 2},
      {"lamb", 9, 4, 0.1 * 2 * 1.5},
      {"lamb", 0, 4, 0.1 * 2},
      {"lamb", 9, 0, 0.1 * 2},
      {"adafactor", 400, 25, 0.1 * 2 * 2},       // a direction of size 0.5
      {"adafactor", 400, 900, 0.1 * 2 * 2 / 3},  // of size 3
      {"adafactor", 0, 25, 0.1 * 2 * 1e-3},      // a small weight
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.by);
    RunOptions options;
    options.step = 3;
    options.initial_outputs = {w};
    TestInputs inputs = {direction, Scalar(1)};
    if (c.by != "plain") {
      inputs.push_back(Scalar(c.weight_squares));
      inputs.push_back(Scalar(c.direction_squares));
    }
    const auto out = RunKernel("weight_step",
                               {{"by", c.by},
                                {"learning_rate", 0.1},
                                {"factor", 2.0},
                                {"count", 100.0},
                                {"weight_decay", 0.5}},
                               inputs, {w.slice}, options);
    std::vector<double> expected;
    for (int64_t i = 0; i < 1000; ++i)
      expected.push_back(w[i] * (1 - 0.1 * 0.5) - c.length * direction[i]);
    ExpectClose(out[0], expected, 0.1);
  }
}

TEST(WeightStepTest, AdafactorBoundsTheRateByTheRootOfTheUpdate) {
  const TestTensor w = Zeros({1}), direction = TensorOf(DType::kF32, {1}, {1});
  RunOptions options;
  options.step = 3;
  options.initial_outputs = {w};
  const auto out =
      RunKernel("weight_step", {{"by", std::string("adafactor")}, {"learning_rate", 8.0}},
                {direction, Scalar(1), Scalar(1), Scalar(1)}, {w.slice}, options);
  ExpectClose(out[0], {-0.5});
}

TEST(UnitNormTest, DividesByTheNorm) {
  const TestTensor x = RandomTensor(DType::kF32, {1000}, 1);
  std::vector<double> expected;
  for (double value : x.values) expected.push_back(value / (3 + 0.5));
  ExpectClose(RunKernel("unit_norm", {{"epsilon", 0.5}}, {x, Scalar(9)}, {x.slice})[0], expected,
              0.1);
}

TEST(WeightAverageTest, BeginsWithTheWeight) {
  TestTensor average = RandomTensor(DType::kF32, {1000}, 1);  // what it holds does not count
  std::vector<double> reference;
  for (int64_t step = 0; step < 3; ++step) {
    const TestTensor w = RandomTensor(DType::kF32, {1000}, 10 + step);
    RunOptions options;
    options.step = step;
    options.initial_outputs = {average};
    average = RunKernel("weight_average", {{"average_decay", 0.75}}, {w, Scalar(1)}, {w.slice},
                        options)[0];
    if (step == 0) reference = w.values;
    for (int64_t i = 0; i < 1000; ++i) reference[i] = 0.75 * reference[i] + 0.25 * w[i];
    ExpectClose(average, reference, 0.1);
  }
}

// A checkpoint after the first update has an average of each weight.
TEST(WeightAverageTest, BeginsWithTheOldWeightIfTheFirstUpdateIsLeftOut) {
  const TestTensor w = RandomTensor(DType::kF32, {100}, 1),
                   before = RandomTensor(DType::kF32, {100}, 2);
  RunOptions options;
  options.initial_outputs = {before};
  for (const double scale : {-1, -2}) {
    ExpectEqualValues(RunKernel("weight_average", {}, {w, Scalar(scale)}, {w.slice}, options)[0],
                      w.values);
  }
}

TEST(UpdatesTest, AScaleBelowZeroOrAnUpdateWithoutGradientsLeavesAllAsItIs) {
  const TestTensor w = RandomTensor(DType::kF32, {100}, 1), m = RandomTensor(DType::kF32, {100}, 2),
                   v = RandomTensor(DType::kF32, {100}, 3);
  TestTensor g = w;
  std::fill(g.values.begin(), g.values.end(), std::numeric_limits<double>::quiet_NaN());
  for (const bool is_late : {true, false}) {
    RunOptions options;
    options.step = is_late ? 0 : 3;
    const Attributes attrs{{"gradient_delay", int64_t{is_late}}};
    const TestTensor scale = Scalar(is_late ? 1 : -1);
    options.initial_outputs = {w, m};
    for (const char* op : {"lion", "momentum_direction", "moment_of_squares"}) {
      const auto out = RunKernel(op, attrs, {g, scale}, {w.slice, m.slice}, options);
      ExpectEqualValues(out[1], m.values);
    }
    ExpectEqualValues(RunKernel("lion", attrs, {g, scale}, {w.slice, m.slice}, options)[0],
                      w.values);
    options.initial_outputs = {w};
    ExpectEqualValues(RunKernel("weight_step", attrs, {g, scale}, {w.slice}, options)[0], w.values);
    ExpectEqualValues(RunKernel("weight_average", attrs, {g, scale}, {w.slice}, options)[0],
                      w.values);
    options.initial_outputs = {w, m, v};
    const auto out =
        RunKernel("adam_direction", attrs, {g, scale, g}, {w.slice, m.slice, v.slice}, options);
    ExpectEqualValues(out[1], m.values);
    ExpectEqualValues(out[2], v.values);
  }
}

TEST(UpdatesTest, OperandsThatDoNotFitAreRefused) {
  const TensorSlice whole = TensorSlice::Whole(DType::kF32, {4, 5}),
                    scalar = TensorSlice::Whole(DType::kF32, {}),
                    row = TensorSlice::Whole(DType::kF32, {4});
  const auto refused = [](KernelSpec spec) { return !KernelRegistry::Create("cpu", spec).ok(); };
  EXPECT_FALSE(refused({.op = "lion", .inputs = {whole, scalar}, .outputs = {whole, whole}}));
  EXPECT_TRUE(refused({.op = "lion", .inputs = {whole, scalar}, .outputs = {whole}}));
  EXPECT_TRUE(refused({.op = "lion", .inputs = {whole, row}, .outputs = {whole, whole}}));
  EXPECT_TRUE(refused({.op = "lion", .inputs = {whole, scalar}, .outputs = {whole, row}}));
  EXPECT_TRUE(refused(
      {.op = "adam_direction", .inputs = {whole, scalar}, .outputs = {whole, whole, whole}}));
  EXPECT_TRUE(refused({.op = "weight_step",
                       .attrs = {{"by", std::string("lamb")}},
                       .inputs = {whole, scalar},
                       .outputs = {whole}}));
  EXPECT_TRUE(refused({.op = "adafactor_direction",
                       .inputs = {whole, scalar, row, row, scalar},
                       .outputs = {whole}}))
      << "columns of another size";
}

}  // namespace
}  // namespace weir::kernels
