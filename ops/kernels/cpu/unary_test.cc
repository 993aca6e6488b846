#include "ops/kernels/cpu/unary.h"

#include <cmath>
#include <limits>
#include <set>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x)));
}
double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// The function in double precision, and what its test needs to know.
struct Reference {
  std::string op;
  double (*f)(double);
  double least, most;  // the range of the arguments
  enum class Grad : uint8_t { kOfInput, kOfResult, kNone } grad;
  Attributes attrs = {};
};

std::vector<Reference> References() {
  using enum Reference::Grad;
  return {
      {"relu", [](double x) { return x > 0 ? x : 0; }, -9, 9, kOfResult},
      {"gelu", Gelu, -9, 9, kOfInput},
      {"gelu_exact", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2))); }, -9, 9,
       kOfInput},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }, -9, 9, kOfInput},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -9, 9, kOfResult},
      {"tanh", [](double x) { return std::tanh(x); }, -4, 4, kOfResult},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }, -9, 9, kOfInput},
      {"erf", [](double x) { return std::erf(x); }, -3, 3, kOfInput},
      {"exp", [](double x) { return std::exp(x); }, -9, 9, kOfResult},
      {"expm1", [](double x) { return std::expm1(x); }, -5, 5, kOfResult},
      {"log", [](double x) { return std::log(x); }, 0.01, 50, kOfInput},
      {"log1p", [](double x) { return std::log1p(x); }, -0.9, 9, kOfInput},
      {"sin", [](double x) { return std::sin(x); }, -20, 20, kOfInput},
      {"cos", [](double x) { return std::cos(x); }, -20, 20, kOfInput},
      {"sqrt", [](double x) { return std::sqrt(x); }, 0.01, 50, kOfResult},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 50, kOfResult},
      {"reciprocal", [](double x) { return 1 / x; }, 0.1, 50, kOfResult},
      {"square", [](double x) { return x * x; }, -9, 9, kOfInput},
      {"abs", [](double x) { return std::abs(x); }, -9, 9, kOfInput},
      {"leaky_relu",
       [](double x) { return x > 0 ? x : 0.2 * x; },
       -9,
       9,
       kOfInput,
       {{"slope", 0.2}}},
      {"elu",
       [](double x) { return x > 0 ? x : 0.7 * std::expm1(x); },
       -9,
       9,
       kOfInput,
       {{"alpha", 0.7}}},
      {"clamp",
       [](double x) { return std::min(std::max(x, -2.3), 4.1); },
       -9,
       9,
       kOfInput,
       {{"min", -2.3}, {"max", 4.1}}},
      {"power", [](double x) { return x * x * x; }, -4, 4, kOfInput, {{"exponent", 3.0}}},
      {"power", [](double x) { return 1 / (x * x); }, 0.3, 9, kOfInput, {{"exponent", -2.0}}},
      {"power", [](double x) { return std::pow(x, 1.7); }, 0.1, 9, kOfInput, {{"exponent", 1.7}}},
      {"sign", Sign, -9, 9, kNone},
      {"step", [](double x) { return (Sign(x) + 1) / 2; }, -9, 9, kNone},
      {"floor", [](double x) { return std::floor(x); }, -9, 9, kNone},
      {"ceil", [](double x) { return std::ceil(x); }, -9, 9, kNone},
      {"round", [](double x) { return std::nearbyint(x); }, -9, 9, kNone}};
}

// The derivative by central differences of the reference.
double Slope(const Reference& reference, double x) {
  return (reference.f(x + 1e-5) - reference.f(x - 1e-5)) / 2e-5;
}

class UnaryKernelTest : public testing::TestWithParam<DType> {
 protected:
  // Returns arguments from all of the range, in the order of the vector's lanes at random.
  static TestTensor Arguments(const Reference& reference, int64_t n) {
    TestTensor x = RandomTensor(GetParam(), {n}, 3);
    for (double& value : x.values) {
      const double share = std::erfc(-value / std::sqrt(2)) / 2;
      value = Stored(GetParam(), reference.least + share * (reference.most - reference.least));
    }
    return x;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, UnaryKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(UnaryKernelTest, ComputesTheFunction) {
  for (const Reference& reference : References()) {
    SCOPED_TRACE(reference.op);
    for (int64_t n : {0, 1, 7, 16, 1000, 20001}) {
      const TestTensor x = Arguments(reference, n);
      auto y = RunKernel(reference.op, reference.attrs, {x}, {x.slice});
      std::vector<double> expected;
      for (double value : x.values) expected.push_back(reference.f(value));
      ExpectClose(y[0], expected);
    }
  }
}

TEST_P(UnaryKernelTest, TheGradientOpComputesTheDerivative) {
  for (const Reference& reference : References()) {
    if (reference.grad == Reference::Grad::kNone) continue;
    SCOPED_TRACE(reference.op);
    for (int64_t n : {0, 1, 7, 16, 1000, 20001}) {
      const TestTensor x = Arguments(reference, n), dy = RandomTensor(GetParam(), {n}, 4);
      TestTensor read = x;
      std::vector<double> expected;
      for (int64_t i = 0; i < n; ++i) {
        // A result that is rounded to bf16 belongs to a slightly different argument.
        const double y = reference.f(x[i]);
        if (reference.grad == Reference::Grad::kOfResult) read.values[i] = Stored(GetParam(), y);
        const double moved = read.values[i] - y;
        const double slope = Slope(reference, x[i]);
        const bool of_result = reference.grad == Reference::Grad::kOfResult && slope != 0;
        expected.push_back(dy[i] * (of_result ? Slope(reference, x[i] + moved / slope) : slope));
      }
      auto dx = RunKernel(reference.op + "_grad", reference.attrs, {read, dy}, {x.slice});
      ExpectClose(dx[0], expected, 4);
    }
  }
}

// Near 0 these functions are as exact as the number itself.
TEST(UnaryTest, SmallArgumentsKeepTheirDigits) {
  const TestTensor x = TensorOf(DType::kF32, {4}, {Stored(DType::kF32, 1e-6), -1e-3, 0.01, 0.25});
  const std::vector<std::pair<std::string, double (*)(double)>> functions = {
      {"tanh", [](double v) { return std::tanh(v); }},
      {"expm1", [](double v) { return std::expm1(v); }},
      {"log1p", [](double v) { return std::log1p(v); }},
      {"erf", [](double v) { return std::erf(v); }},
      {"sin", [](double v) { return std::sin(v); }}};
  for (const auto& [op, f] : functions) {
    auto y = RunKernel(op, {}, {x}, {x.slice});
    for (int64_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[0][i] / f(Stored(DType::kF32, x[i])), 1, 1e-6) << op << " of " << x[i];
  }
}

TEST(UnaryTest, LargeArgumentsNeitherOverflowNorVanish) {
  const TestTensor x = TensorOf(DType::kF32, {6}, {-1e4, -90, 0, 90, 1e4, 1e10});
  const std::vector<std::pair<std::string, std::vector<double>>> expected = {
      {"gelu", {0, 0, 0, 90, 1e4, 1e10}},
      {"gelu_exact", {0, 0, 0, 90, 1e4, 1e10}},
      {"silu", {0, 0, 0, 90, 1e4, 1e10}},
      {"softplus", {0, 0, std::log(2), 90, 1e4, 1e10}},
      {"sigmoid", {0, 0, 0.5, 1, 1, 1}},
      {"tanh", {-1, -1, 0, 1, 1, 1}},
      {"erf", {-1, -1, 0, 1, 1, 1}},
      {"exp", {0, 0, 1, kInfinity, kInfinity, kInfinity}},
      {"expm1", {-1, -1, 0, kInfinity, kInfinity, kInfinity}},
      {"floor", {-1e4, -90, 0, 90, 1e4, 1e10}},
      {"round", {-1e4, -90, 0, 90, 1e4, 1e10}}};
  for (const auto& [op, values] : expected) {
    auto y = RunKernel(op, {}, {x}, {x.slice});
    for (int64_t i = 0; i < x.size(); ++i) {
      if (std::isinf(values[i])) {
        EXPECT_EQ(y[0][i], values[i]) << op << " of " << x[i];
      } else {
        EXPECT_NEAR(y[0][i], values[i], 1e-5 * std::max(1.0, std::abs(values[i])))
            << op << " of " << x[i];
      }
    }
  }
}

TEST(UnaryTest, TheEdgesOfADomainAreThoseOfTheLibraryOfC) {
  const TestTensor x =
      TensorOf(DType::kF32, {5}, {0, -1, kInfinity, -kInfinity, Stored(DType::kF32, 1e-38)});
  const std::vector<std::pair<std::string, float (*)(float)>> functions = {
      {"log", [](float v) { return std::log(v); }},
      {"log1p", [](float v) { return std::log1p(v); }},
      {"sqrt", [](float v) { return std::sqrt(v); }},
      {"rsqrt", [](float v) { return 1 / std::sqrt(v); }},
      {"reciprocal", [](float v) { return 1 / v; }},
      {"sin", [](float v) { return std::sin(v); }}};
  for (const auto& [op, f] : functions) {
    auto y = RunKernel(op, {}, {x}, {x.slice});
    for (int64_t i = 0; i < x.size(); ++i) {
      const float expected = f(static_cast<float>(x[i]));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[0][i])) << op << " of " << x[i] << " is " << y[0][i];
      } else if (std::isinf(expected)) {
        EXPECT_EQ(y[0][i], expected) << op << " of " << x[i];
      } else {
        EXPECT_NEAR(y[0][i], expected, 2e-6 * std::max(1.0f, std::abs(expected)))
            << op << " of " << x[i];
      }
    }
  }
}

TEST(UnaryTest, HalvesRoundToTheEvenNumber) {
  const TestTensor x = TensorOf(DType::kF32, {6}, {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5});
  ExpectEqualValues(RunKernel("round", {}, {x}, {x.slice})[0], {-2, -2, 0, 0, 2, 2});
}

TEST(UnaryTest, LargeArgumentsHaveASlope) {
  const TestTensor x = TensorOf(DType::kF32, {4}, {-1e30, -90, 90, 1e30});
  const TestTensor dy = TensorOf(DType::kF32, {4}, {1, 1, 1, 1});
  ExpectClose(RunKernel("gelu_exact_grad", {}, {x, dy}, {x.slice})[0], {0, 0, 1, 1});
  ExpectClose(RunKernel("softplus_grad", {}, {x, dy}, {x.slice})[0], {0, 0, 1, 1});
}

TEST(UnaryTest, NaNStaysVisible) {
  const TestTensor x = TensorOf(DType::kF32, {2}, {std::nan(""), 1});
  for (const Reference& reference : References()) {
    auto y = RunKernel(reference.op, reference.attrs, {x}, {x.slice});
    EXPECT_TRUE(std::isnan(y[0][0])) << reference.op;
    EXPECT_FALSE(std::isnan(y[0][1])) << reference.op;
  }
}

TEST(UnaryTest, NamesAreThoseOfTheCatalogue) {
  EXPECT_EQ(UnaryFromName("none"), Unary::kNone);
  EXPECT_EQ(UnaryFromName("gelu"), Unary::kGelu);
  EXPECT_EQ(UnaryFromName("swish"), std::nullopt);
  std::set<std::string> tested;
  for (const Reference& reference : References()) tested.insert(reference.op);
#define WEIR_UNARY_TESTED(id, name, Code, has_grad) \
  EXPECT_TRUE(tested.count(name) > 0 || Unary::id == Unary::kNone) << name;
  WEIR_UNARY_FUNCTIONS(WEIR_UNARY_TESTED)
#undef WEIR_UNARY_TESTED
}

TEST(UnaryTest, AKernelThatDoesNotFitIsRefused) {
  KernelSpec spec{.op = "relu",
                  .inputs = {TensorSlice::Whole(DType::kF32, {3})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {4})}};
  EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
