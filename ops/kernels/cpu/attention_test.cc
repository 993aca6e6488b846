#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

struct Call {
  int64_t batch, length, heads, groups, width;
  bool causal = true;
  double scale = 0;
  int64_t other_keys = 0;  // 0: as many keys as queries
  int64_t window = 0;

  Shape QueryShape() const { return {batch, length, heads, width}; }
  int64_t keys() const { return other_keys > 0 ? other_keys : length; }
  Shape KeyShape() const { return {batch, keys(), groups, width}; }
  Shape LseShape() const { return {batch, heads, length}; }
  Attributes Attrs() const { return {{"causal", causal}, {"scale", scale}, {"window", window}}; }
  double Factor() const { return scale == 0 ? 1 / std::sqrt(static_cast<double>(width)) : scale; }
  int64_t Query(int64_t b, int64_t i, int64_t h) const {
    return ((b * length + i) * heads + h) * width;
  }
  int64_t Key(int64_t b, int64_t j, int64_t h) const {
    return ((b * keys() + j) * groups + h / (heads / groups)) * width;
  }
  int64_t Lse(int64_t b, int64_t i, int64_t h) const { return (b * heads + h) * length + i; }
  int64_t FirstKey(int64_t i) const {
    return window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
  }
  int64_t EndKey(int64_t i) const { return causal ? i + 1 : keys(); }
};

// Lengths and widths around vectors and tiles; groups of one, two and all heads.
const Call kCalls[] = {
    {.batch = 1, .length = 1, .heads = 1, .groups = 1, .width = 1},
    {.batch = 2, .length = 5, .heads = 6, .groups = 3, .width = 4},
    {.batch = 1, .length = 16, .heads = 2, .groups = 1, .width = 16},
    {.batch = 3, .length = 63, .heads = 1, .groups = 1, .width = 7},
    {.batch = 1, .length = 64, .heads = 2, .groups = 2, .width = 32},
    {.batch = 1, .length = 64, .heads = 2, .groups = 2, .width = 32, .causal = false},
    {.batch = 2, .length = 65, .heads = 4, .groups = 2, .width = 24, .scale = 0.3},
    {.batch = 1, .length = 200, .heads = 3, .groups = 1, .width = 48},
    {.batch = 1,
     .length = 200,
     .heads = 2,
     .groups = 2,
     .width = 16,
     .causal = false,
     .scale = 0.7},
    {.batch = 9, .length = 130, .heads = 2, .groups = 2, .width = 20},
    {.batch = 1, .length = 150, .heads = 1, .groups = 1, .width = 80},
    {.batch = 2,
     .length = 3,
     .heads = 4,
     .groups = 2,
     .width = 5,
     .causal = false,
     .other_keys = 9},
    {.batch = 1,
     .length = 150,
     .heads = 2,
     .groups = 1,
     .width = 8,
     .causal = false,
     .other_keys = 65},
    {.batch = 1,
     .length = 65,
     .heads = 1,
     .groups = 1,
     .width = 8,
     .causal = false,
     .other_keys = 193},
    {.batch = 1, .length = 200, .heads = 2, .groups = 1, .width = 8, .window = 1},
    {.batch = 1, .length = 200, .heads = 2, .groups = 2, .width = 8, .window = 5},
    {.batch = 1, .length = 200, .heads = 1, .groups = 1, .width = 20, .window = 64},
    {.batch = 1, .length = 200, .heads = 1, .groups = 1, .width = 20, .window = 65},
    {.batch = 1, .length = 200, .heads = 1, .groups = 1, .width = 20, .window = 130},
    {.batch = 1, .length = 200, .heads = 1, .groups = 1, .width = 20, .window = 500},
};

double Dot(const TestTensor& a, int64_t at_a, const TestTensor& b, int64_t at_b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[at_a + i] * b[at_b + i];
  return sum;
}

struct Reference {
  std::vector<double> o, lse, dq, dk, dv;
};

// Calls f(b, i, h) for every query.
template <typename F>
void ForQueries(const Call& call, F f) {
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t i = 0; i < call.length; ++i) {
      for (int64_t h = 0; h < call.heads; ++h) f(b, i, h);
    }
  }
}

Reference Attend(const Call& call, const TestTensor& q, const TestTensor& k, const TestTensor& v) {
  Reference result;
  result.o.resize(q.size());
  result.lse.resize(NumElements(call.LseShape()));
  ForQueries(call, [&](int64_t b, int64_t i, int64_t h) {
    double sum = 0;
    std::vector<double> weights;
    for (int64_t j = call.FirstKey(i); j < call.EndKey(i); ++j) {
      weights.push_back(
          std::exp(call.Factor() * Dot(q, call.Query(b, i, h), k, call.Key(b, j, h), call.width)));
      sum += weights.back();
    }
    for (int64_t j = call.FirstKey(i); j < call.EndKey(i); ++j) {
      for (int64_t c = 0; c < call.width; ++c) {
        result.o[call.Query(b, i, h) + c] +=
            weights[j - call.FirstKey(i)] / sum * v[call.Key(b, j, h) + c];
      }
    }
    result.lse[call.Lse(b, i, h)] = std::log(sum);
  });
  return result;
}

// The gradients from the definition of softmax's, with o and lse as given.
Reference Gradients(const Call& call, const TestTensor& q, const TestTensor& k, const TestTensor& v,
                    const TestTensor& o, const TestTensor& lse, const TestTensor& d_o) {
  Reference result;
  result.dq.resize(q.size());
  result.dk.resize(k.size());
  result.dv.resize(v.size());
  ForQueries(call, [&](int64_t b, int64_t i, int64_t h) {
    const int64_t at = call.Query(b, i, h);
    const double inner = Dot(o, at, d_o, at, call.width);
    for (int64_t j = call.FirstKey(i); j < call.EndKey(i); ++j) {
      const int64_t key = call.Key(b, j, h);
      double weight =
          std::exp(call.Factor() * Dot(q, at, k, key, call.width) - lse[call.Lse(b, i, h)]);
      double d_score = call.Factor() * weight * (Dot(d_o, at, v, key, call.width) - inner);
      for (int64_t c = 0; c < call.width; ++c) {
        result.dv[key + c] += weight * d_o[at + c];
        result.dq[at + c] += d_score * k[key + c];
        result.dk[key + c] += d_score * q[at + c];
      }
    }
  });
  return result;
}

struct Operands {
  TestTensor q, k, v, d_o;
};

Operands RandomOperands(const Call& call, DType dtype) {
  return {RandomTensor(dtype, call.QueryShape(), 1), RandomTensor(dtype, call.KeyShape(), 2),
          RandomTensor(dtype, call.KeyShape(), 3), RandomTensor(dtype, call.QueryShape(), 4)};
}

// Tells whether the kernel of the device rounds the weights of the values, and their gradients, to
// the operands' type: cuDNN does so on a GPU, where a product takes operands of one type.
bool RoundsWeights(DType dtype) { return DeviceOfTests() == "cuda" && dtype == DType::kBF16; }

class AttentionKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, AttentionKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(AttentionKernelTest, WeighsValuesByTheSoftmaxOfScores) {
  for (const Call& call : kCalls) {
    SCOPED_TRACE(testing::Message() << ToText(call.QueryShape()) << " of " << call.groups
                                    << ", window " << call.window);
    Operands x = RandomOperands(call, GetParam());
    TensorSlice lse = TensorSlice::Whole(DType::kF32, call.LseShape());
    auto results = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v}, {x.q.slice, lse});
    auto alone = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v}, {x.q.slice});
    Reference expected = Attend(call, x.q, x.k, x.v);
    ExpectClose(results[0], expected.o, RoundsWeights(GetParam()) ? 2 : 1);
    ExpectClose(results[1], expected.lse);
    ExpectEqualValues(alone[0], results[0].values);
  }
}

TEST_P(AttentionKernelTest, GradientsAreThoseOfTheDefinition) {
  for (const Call& call : kCalls) {
    SCOPED_TRACE(testing::Message() << ToText(call.QueryShape()) << " of " << call.groups
                                    << ", window " << call.window);
    Operands x = RandomOperands(call, GetParam());
    TensorSlice lse_slice = TensorSlice::Whole(DType::kF32, call.LseShape());
    auto forward = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v}, {x.q.slice, lse_slice});
    auto results =
        RunKernel("attention_grad", call.Attrs(), {x.q, x.k, x.v, forward[0], forward[1], x.d_o},
                  {x.q.slice, x.k.slice, x.v.slice});
    Reference expected = Gradients(call, x.q, x.k, x.v, forward[0], forward[1], x.d_o);
    // A gradient is a sum of products of two rounded factors: the weights, or their gradients.
    const double scale = RoundsWeights(GetParam()) ? 3 : 1;
    ExpectClose(results[0], expected.dq, scale);
    ExpectClose(results[1], expected.dk, scale);
    ExpectClose(results[2], expected.dv, scale);
  }
}

TEST(AttentionTest, TheGradientIsTheSlopeOfTheResult) {
  const Call call{.batch = 1, .length = 5, .heads = 2, .groups = 1, .width = 3};
  Operands x = RandomOperands(call, DType::kF32);
  auto objective = [&] {
    Reference result = Attend(call, x.q, x.k, x.v);
    double sum = 0;
    for (int64_t i = 0; i < x.d_o.size(); ++i) sum += result.o[i] * x.d_o[i];
    return sum;
  };
  TensorSlice lse_slice = TensorSlice::Whole(DType::kF32, call.LseShape());
  auto forward = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v}, {x.q.slice, lse_slice});
  auto results =
      RunKernel("attention_grad", call.Attrs(), {x.q, x.k, x.v, forward[0], forward[1], x.d_o},
                {x.q.slice, x.k.slice, x.v.slice});
  TestTensor* operands[] = {&x.q, &x.k, &x.v};
  for (int which = 0; which < 3; ++which) {
    std::vector<double> slopes;
    for (double& value : operands[which]->values) {
      const double kept = value, step = 1e-5;
      value = kept + step;
      double above = objective();
      value = kept - step;
      slopes.push_back((above - objective()) / (2 * step));
      value = kept;
    }
    ExpectClose(results[which], slopes);
  }
}

TEST(AttentionTest, ScoresFarApartNeitherOverflowNorLoseTheLargest) {
  const Call call{.batch = 1, .length = 130, .heads = 1, .groups = 1, .width = 1, .scale = 1};
  TestTensor q = TensorOf(DType::kF32, call.QueryShape(), std::vector<double>(130, 100.0)), k = q,
             v = q;
  for (int64_t j = 0; j < 130; ++j) {
    k.values[j] = j == 70 ? 90 : j % 5 - 20;
    v.values[j] = j;
  }
  auto results = RunKernel("attention", call.Attrs(), {q, k, v},
                           {q.slice, TensorSlice::Whole(DType::kF32, call.LseShape())});
  EXPECT_EQ(results[0][70], 70);
  EXPECT_EQ(results[0][129], 70);
  EXPECT_NEAR(results[1][129], 9000, 0.01);
  EXPECT_NEAR(results[0][2], 2, 1e-6);
  auto grads = RunKernel("attention_grad", call.Attrs(), {q, k, v, results[0], results[1], v},
                         {q.slice, q.slice, q.slice});
  for (const TestTensor& grad : grads) {
    for (double value : grad.values) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(AttentionTest, NaNReachesOnlyTheQueriesThatSeeIt) {
  const Call call{.batch = 1, .length = 100, .heads = 1, .groups = 1, .width = 4};
  Operands x = RandomOperands(call, DType::kF32);
  x.k.values[70 * 4] = std::nan("");
  auto results = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v}, {x.q.slice});
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(results[0][i * 4]), i >= 70) << i;
}

TEST(AttentionTest, EmptyOperandsGiveEmptyResultsAndZeroGradients) {
  for (const Call& call : {Call{.batch = 0, .length = 4, .heads = 2, .groups = 1, .width = 8},
                           Call{.batch = 2, .length = 0, .heads = 2, .groups = 1, .width = 8},
                           Call{.batch = 2, .length = 3, .heads = 0, .groups = 2, .width = 8},
                           Call{.batch = 2, .length = 3, .heads = 0, .groups = 0, .width = 8},
                           Call{.batch = 2, .length = 3, .heads = 2, .groups = 1, .width = 0}}) {
    Operands x = RandomOperands(call, DType::kF32);
    auto forward = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v},
                             {x.q.slice, TensorSlice::Whole(DType::kF32, call.LseShape())});
    auto grads =
        RunKernel("attention_grad", call.Attrs(), {x.q, x.k, x.v, forward[0], forward[1], x.d_o},
                  {x.q.slice, x.k.slice, x.v.slice});
    ExpectEqualValues(grads[1], std::vector<double>(x.k.size(), 0.0));
    ExpectEqualValues(grads[2], std::vector<double>(x.v.size(), 0.0));
  }
}

// A mask of 0 and 1 for [1, 1, queries, keys]. Query i sees no key if i % 3 is 0.
TestTensor MaskOf(const Call& call) {
  TestTensor mask = RandomTensor(DType::kF32, {1, 1, call.length, call.keys()}, 9);
  mask.slice.dtype = DType::kBool;
  for (int64_t i = 0; i < mask.size(); ++i)
    mask.values[i] = i / call.keys() % 3 == 0 || mask[i] < 0.2 ? 0 : 1;
  return mask;
}

// Calls with one tile and with several, so that some blocks of keys are hidden whole.
const Call kMaskedCalls[] = {
    {.batch = 2, .length = 7, .heads = 2, .groups = 1, .width = 8, .causal = false},
    {.batch = 1, .length = 150, .heads = 2, .groups = 2, .width = 12},
    {.batch = 1,
     .length = 70,
     .heads = 4,
     .groups = 2,
     .width = 20,
     .causal = false,
     .other_keys = 200},
    {.batch = 1, .length = 200, .heads = 1, .groups = 1, .width = 16, .window = 70},
};

TEST(AttentionTest, AQueryThatSeesNoKeyHasTheResultZeroAndNoGradient) {
  for (const Call& call : kMaskedCalls) {
    const Operands x = RandomOperands(call, DType::kF32);
    const TestTensor mask = MaskOf(call);
    const auto forward = RunKernel("attention", call.Attrs(), {x.q, x.k, x.v, mask},
                                   {x.q.slice, TensorSlice::Whole(DType::kF32, call.LseShape())});
    const auto grads = RunKernel("attention_grad", call.Attrs(),
                                 {x.q, x.k, x.v, forward[0], forward[1], x.d_o, mask},
                                 {x.q.slice, x.k.slice, x.v.slice});
    ForQueries(call, [&](int64_t b, int64_t i, int64_t h) {
      bool sees = false;
      for (int64_t j = call.FirstKey(i); j < call.EndKey(i); ++j)
        sees = sees || mask[i * call.keys() + j] != 0;
      EXPECT_EQ(std::isinf(forward[1][call.Lse(b, i, h)]), !sees) << "query " << i;
      for (int64_t d = 0; d < call.width; ++d) {
        const int64_t at = call.Query(b, i, h) + d;
        ASSERT_EQ(forward[0][at] == 0, !sees) << "query " << i;
        ASSERT_EQ(grads[0][at] == 0, !sees) << "query " << i;
      }
    });
    for (int part : {1, 2}) {
      for (double value : grads[part].values) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(AttentionTest, NumbersBelowTheThresholdHideAsAMaskDoesWhateverTheirSize) {
  for (const Call& call : kMaskedCalls) {
    const Operands x = RandomOperands(call, DType::kF32);
    const TestTensor mask = MaskOf(call);
    const TestOutputs forward_outputs = {x.q.slice,
                                         TensorSlice::Whole(DType::kF32, call.LseShape())};
    const auto expected =
        RunKernel("attention", call.Attrs(), {x.q, x.k, x.v, mask}, forward_outputs);
    const auto gradients = [&](const TestTensor& by, const std::vector<TestTensor>& forward) {
      return RunKernel("attention_grad", call.Attrs(),
                       {x.q, x.k, x.v, forward[0], forward[1], x.d_o, by},
                       {x.q.slice, x.k.slice, x.v.slice});
    };
    const auto expected_grads = gradients(mask, expected);
    for (double hidden : {-1.5e5, -1e9, -3.4e38, double{-INFINITY}}) {
      TestTensor added = mask;
      added.slice.dtype = DType::kF32;
      for (double& value : added.values) value = Stored(DType::kF32, value != 0 ? 0 : hidden);
      const auto forward =
          RunKernel("attention", call.Attrs(), {x.q, x.k, x.v, added}, forward_outputs);
      ExpectEqualValues(forward[0], expected[0].values);
      const auto grads = gradients(added, forward);
      for (int part = 0; part < 3; ++part)
        ExpectEqualValues(grads[part], expected_grads[part].values);
    }
  }
}

TEST(AttentionTest, MasksThatDoNotFitAreRefused) {
  const TensorSlice q = TensorSlice::Whole(DType::kF32, {2, 4, 3, 2});
  for (const TensorSlice& mask :
       {TensorSlice::Whole(DType::kBool, {2, 3, 4, 5}), TensorSlice::Whole(DType::kBool, {2, 4}),
        TensorSlice::Whole(DType::kI32, {2, 3, 4, 4}),
        TensorSlice::Whole(DType::kBF16, {2, 3, 4, 4})}) {
    KernelSpec spec{.op = "attention", .inputs = {q, q, q, mask}, .outputs = {q}};
    EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
              absl::StatusCode::kInvalidArgument)
        << ToText(mask);
  }
}

TEST(AttentionTest, HeadsThatDoNotGroupAreRefused) {
  KernelSpec spec{.op = "attention",
                  .inputs = {TensorSlice::Whole(DType::kF32, {1, 4, 3, 2}),
                             TensorSlice::Whole(DType::kF32, {1, 4, 2, 2}),
                             TensorSlice::Whole(DType::kF32, {1, 4, 2, 2})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {1, 4, 3, 2})}};
  EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
