#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

enum class Norm { kLayer, kRms };

struct Sizes {
  Shape leading;
  int64_t h;
};
const Sizes kSizes[] = {{{3}, 5},    {{2, 7}, 64}, {{0}, 8},    {{1300}, 33}, {{}, 100},
                        {{4}, 3000}, {{5}, 1},     {{70}, 768}, {{9}, 256}};

// The reference in double precision, and its gradients from the analytic formulas of the
// mean and variance as functions of x (checked against differences below).
struct Reference {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;
};

Reference Compute(Norm norm, const std::vector<double>& x, const std::vector<double>& gamma,
                  const std::vector<double>& beta, const std::vector<double>& dy, int64_t rows,
                  int64_t h, double epsilon) {
  Reference r;
  r.dgamma.assign(h, 0);
  r.dbeta.assign(h, 0);
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = x.data() + i * h;
    double mean = 0, squares = 0;
    for (int64_t j = 0; j < h && norm == Norm::kLayer; ++j) mean += row[j] / h;
    for (int64_t j = 0; j < h; ++j) squares += (row[j] - mean) * (row[j] - mean) / h;
    const double rstd = 1 / std::sqrt(squares + epsilon);
    double level = 0, along = 0;
    for (int64_t j = 0; j < h; ++j) {
      const double normal = (row[j] - mean) * rstd, d = dy[i * h + j];
      r.y.push_back(normal * gamma[j] + beta[j]);
      r.dgamma[j] += d * normal;
      r.dbeta[j] += d;
      level += norm == Norm::kLayer ? d * gamma[j] / h : 0;
      along += d * gamma[j] * normal / h;
    }
    for (int64_t j = 0; j < h; ++j) {
      r.dx.push_back(rstd * (dy[i * h + j] * gamma[j] - level - (row[j] - mean) * rstd * along));
    }
    r.mean.push_back(mean);
    r.rstd.push_back(rstd);
  }
  return r;
}

TEST(NormReferenceTest, GradientIsTheDifferenceQuotient) {
  for (Norm norm : {Norm::kLayer, Norm::kRms}) {
    const int64_t rows = 2, h = 7;
    std::vector<double> x = RandomTensor(DType::kF32, {rows, h}, 1).values,
                        gamma = RandomTensor(DType::kF32, {h}, 2).values;
    std::vector<double> beta = RandomTensor(DType::kF32, {h}, 3).values,
                        dy = RandomTensor(DType::kF32, {rows, h}, 4).values;
    Reference r = Compute(norm, x, gamma, beta, dy, rows, h, 1e-5);
    auto loss = [&](const std::vector<double>& at) {
      Reference moved = Compute(norm, at, gamma, beta, dy, rows, h, 1e-5);
      double sum = 0;
      for (size_t i = 0; i < dy.size(); ++i) sum += moved.y[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<double> up = x, down = x;
      up[i] += 1e-5;
      down[i] -= 1e-5;
      EXPECT_NEAR(r.dx[i], (loss(up) - loss(down)) / 2e-5, 1e-6);
    }
  }
}

class NormKernelTest : public testing::TestWithParam<std::tuple<Norm, DType>> {
 protected:
  Norm norm() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  std::string Op() const { return norm() == Norm::kLayer ? "layer_norm" : "rms_norm"; }
};
INSTANTIATE_TEST_SUITE_P(Kinds, NormKernelTest,
                         testing::Combine(testing::Values(Norm::kLayer, Norm::kRms),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) == Norm::kLayer ? "layer_"
                                                                                      : "rms_") +
                                  Name(std::get<1>(test.param));
                         });

TEST_P(NormKernelTest, NormalisesTheLastAxisAndItsGradientAgrees) {
  for (const Sizes& sizes : kSizes) {
    Shape shape = sizes.leading;
    shape.push_back(sizes.h);
    const int64_t rows = NumElements(sizes.leading);
    TestTensor x = RandomTensor(dtype(), shape, 1), gamma = RandomTensor(dtype(), {sizes.h}, 2);
    TestTensor beta = RandomTensor(dtype(), {sizes.h}, 3), dy = RandomTensor(dtype(), shape, 4);
    for (double& value : x.values) value = Stored(dtype(), value * 2 + 1);
    const bool layer = norm() == Norm::kLayer;
    if (!layer) std::fill(beta.values.begin(), beta.values.end(), 0);
    Reference r =
        Compute(norm(), x.values, gamma.values, beta.values, dy.values, rows, sizes.h, 1e-5);
    TensorSlice per_row = TensorSlice::Whole(DType::kF32, sizes.leading);
    TestInputs inputs = {x, gamma};
    TestOutputs outputs = {x.slice};
    if (layer) inputs.push_back(beta), outputs.push_back(per_row);
    outputs.push_back(per_row);
    auto out = RunKernel(Op(), {{"epsilon", 1e-5}}, inputs, outputs);
    ExpectClose(out[0], r.y);
    if (layer) ExpectClose(out[1], r.mean);
    ExpectClose(out.back(), r.rstd, 5);
    auto alone = RunKernel(Op(), {{"epsilon", 1e-5}}, inputs, {x.slice});
    ExpectEqualValues(alone[0], out[0].values);

    TestTensor mean = TensorOf(DType::kF32, sizes.leading, r.mean),
               rstd = TensorOf(DType::kF32, sizes.leading, r.rstd);
    for (double& value : mean.values) value = Stored(DType::kF32, value);
    for (double& value : rstd.values) value = Stored(DType::kF32, value);
    TensorSlice parameter = TensorSlice::Whole(DType::kF32, {sizes.h});
    TestInputs grad_inputs = {x, gamma, mean, rstd, dy};
    if (!layer) grad_inputs.erase(grad_inputs.begin() + 2);
    TestOutputs grad_outputs = {x.slice, parameter};
    if (layer) grad_outputs.push_back(TensorSlice::Whole(dtype(), {sizes.h}));
    auto grads = RunKernel(Op() + "_grad", {}, grad_inputs, grad_outputs);
    ExpectClose(
        grads[0], r.dx,
        sizes.h == 1 ? 50 : 2);  // of one element: a difference of equal numbers, times rstd
    ExpectClose(grads[1], r.dgamma, 5);
    if (layer) ExpectClose(grads[2], r.dbeta, 5);
  }
}

TEST(NormTest, ParametersMayStayInF32BesideBf16) {
  TestTensor x = RandomTensor(DType::kBF16, {9, 40}, 1), gamma = RandomTensor(DType::kF32, {40}, 2);
  TestTensor beta = RandomTensor(DType::kF32, {40}, 3);
  Reference r = Compute(Norm::kLayer, x.values, gamma.values, beta.values, x.values, 9, 40, 1e-5);
  auto out = RunKernel("layer_norm", {}, {x, gamma, beta}, {x.slice});
  ExpectClose(out[0], r.y);
}

}  // namespace
}  // namespace weir::kernels
