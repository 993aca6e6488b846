#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

struct Sizes {
  Shape leading;
  int64_t n;
};
const Sizes kSizes[] = {{{3}, 5},     {{2, 7}, 100}, {{5}, 1}, {{0}, 10},
                        {{33}, 1001}, {{2}, 30011},  {{}, 17}};

struct Rows {
  TestTensor logits, targets;
  int64_t count, n;
  std::vector<double> max, sum, loss;
};

class CrossEntropyKernelTest : public testing::TestWithParam<DType> {
 protected:
  Rows Make(const Sizes& sizes) {
    Rows rows;
    Shape shape = sizes.leading;
    shape.push_back(sizes.n);
    rows.logits = RandomTensor(GetParam(), shape, 1);
    for (double& value : rows.logits.values) value = Stored(GetParam(), value * 5 + 30);
    rows.targets = RandomIndices(sizes.leading, 0, sizes.n, 2);
    rows.count = rows.targets.size();
    rows.n = sizes.n;
    for (int64_t i = 0; i < rows.count; ++i) {
      double max = -INFINITY, sum = 0;
      for (int64_t j = 0; j < rows.n; ++j) max = std::max(max, rows.logits[i * rows.n + j]);
      for (int64_t j = 0; j < rows.n; ++j) sum += std::exp(rows.logits[i * rows.n + j] - max);
      rows.max.push_back(max);
      rows.sum.push_back(sum);
      rows.loss.push_back(std::log(sum) + max -
                          rows.logits[i * rows.n + static_cast<int64_t>(rows.targets[i])]);
    }
    return rows;
  }
  // Columns [begin, end) as the shard of a split vocabulary.
  TestTensor Columns(const Rows& rows, int64_t begin, int64_t end) {
    TestTensor part{rows.logits.slice, {}};
    part.slice.shape.back() = end - begin;
    part.slice.offset.back() = begin;
    for (int64_t i = 0; i < rows.count; ++i) {
      for (int64_t j = begin; j < end; ++j) part.values.push_back(rows.logits[i * rows.n + j]);
    }
    return part;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CrossEntropyKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(CrossEntropyKernelTest, LossIsTheLogarithmOfTheTargetsProbability) {
  for (const Sizes& sizes : kSizes) {
    Rows rows = Make(sizes);
    TensorSlice per_row = TensorSlice::Whole(DType::kF32, sizes.leading);
    auto out = RunKernel("softmax_cross_entropy", {}, {rows.logits, rows.targets},
                         {per_row, per_row, per_row});
    ExpectClose(out[0], rows.loss);
    ExpectEqualValues(out[1], rows.max);
    ExpectClose(out[2], rows.sum);
    auto alone = RunKernel("softmax_cross_entropy", {}, {rows.logits, rows.targets}, {per_row});
    ExpectEqualValues(alone[0], out[0].values);
  }
}

TEST_P(CrossEntropyKernelTest, GradientIsProbabilityMinusOneAtTheTarget) {
  for (const Sizes& sizes : kSizes) {
    Rows rows = Make(sizes);
    TestTensor max = TensorOf(DType::kF32, sizes.leading, rows.max),
               sum = TensorOf(DType::kF32, sizes.leading, rows.sum);
    TestTensor dloss = RandomTensor(DType::kF32, sizes.leading, 5);
    for (auto [begin, end] :
         {std::pair<int64_t, int64_t>{0, rows.n}, {rows.n / 3, rows.n}, {0, rows.n / 2}}) {
      TestTensor part = Columns(rows, begin, end);
      auto out = RunKernel("softmax_cross_entropy_grad", {}, {part, rows.targets, max, sum, dloss},
                           {part.slice});
      std::vector<double> expected;
      for (int64_t i = 0; i < rows.count; ++i) {
        for (int64_t j = begin; j < end; ++j) {
          double p = std::exp(rows.logits[i * rows.n + j] - rows.max[i]) / rows.sum[i];
          expected.push_back((p - (j == static_cast<int64_t>(rows.targets[i]) ? 1 : 0)) * dloss[i]);
        }
      }
      ExpectClose(out[0], expected);
    }
  }
}

TEST_P(CrossEntropyKernelTest, ShardsOfTheVocabularyAddUpToTheWholeLoss) {
  for (const Sizes& sizes : kSizes) {
    Rows rows = Make(sizes);
    TestTensor max = TensorOf(DType::kF32, sizes.leading, rows.max);
    TensorSlice per_row = max.slice;
    TestTensor sum = max, picked = max;
    std::fill(sum.values.begin(), sum.values.end(), 0);
    std::fill(picked.values.begin(), picked.values.end(), 0);
    for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, rows.n / 3}, {rows.n / 3, rows.n}}) {
      auto part = RunKernel("exp_sum_pick", {}, {Columns(rows, begin, end), rows.targets, max},
                            {per_row, per_row});
      for (int64_t i = 0; i < rows.count; ++i) {
        sum.values[i] = Stored(DType::kF32, sum[i] + part[0][i]);
        picked.values[i] += part[1][i];
      }
    }
    auto loss = RunKernel("cross_entropy_finish", {}, {max, sum, picked}, {per_row});
    ExpectClose(loss[0], rows.loss);
  }
}

TEST_P(CrossEntropyKernelTest, AccuracyComparesTheFirstLargestLogit) {
  for (const Sizes& sizes : kSizes) {
    Rows rows = Make(sizes);
    std::vector<double> expected;
    for (int64_t i = 0; i < rows.count; ++i) {
      int64_t best = 0;
      for (int64_t j = 1; j < rows.n; ++j) {
        if (rows.logits[i * rows.n + j] > rows.logits[i * rows.n + best]) best = j;
      }
      if (i % 2 == 0) rows.targets.values[i] = static_cast<double>(best);
      expected.push_back(best == static_cast<int64_t>(rows.targets[i]) ? 1 : 0);
    }
    auto hit = RunKernel("accuracy", {}, {rows.logits, rows.targets},
                         {TensorSlice::Whole(DType::kF32, sizes.leading)});
    ExpectEqualValues(hit[0], expected);
  }
}

TEST(CrossEntropyTest, ASplitVocabularyIsRefusedByTheWholeKernel) {
  TensorSlice shard{DType::kF32, {3, 5}, {0, 5}, {3, 10}};
  KernelSpec spec{.op = "softmax_cross_entropy",
                  .inputs = {shard, TensorSlice::Whole(DType::kI32, {3})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {3})}};
  EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
