#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

struct Shard {
  int64_t offset, rows, vocabulary, width;
  TensorSlice Slice(DType dtype) const {
    return TensorSlice{dtype, {rows, width}, {offset, 0}, {vocabulary, width}};
  }
};

const Shard kShards[] = {{0, 50, 50, 16}, {20, 17, 50, 33},    {0, 0, 50, 8},
                         {49, 1, 50, 1},  {0, 3000, 3000, 64}, {0, 5, 5, 0}};

class EmbeddingKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(EmbeddingKernelTest, LooksUpTheRowsOfItsShardAndLeavesTheOthersZero) {
  for (const Shard& shard : kShards) {
    for (const Shape& shape : {Shape{0}, Shape{3}, Shape{7, 101}}) {
      TestTensor table = RandomTensor(shard.Slice(GetParam()), 1);
      TestTensor ids = RandomIndices(shape, -3, shard.vocabulary + 3, 2);
      Shape y_shape = shape;
      y_shape.push_back(shard.width);
      auto y = RunKernel("embedding", {}, {table, ids}, {TensorSlice::Whole(GetParam(), y_shape)});
      std::vector<double> expected;
      for (double id : ids.values) {
        int64_t row = static_cast<int64_t>(id) - shard.offset;
        for (int64_t j = 0; j < shard.width; ++j) {
          expected.push_back(0 <= row && row < shard.rows ? table[row * shard.width + j] : 0);
        }
      }
      ExpectEqualValues(y[0], expected);
    }
  }
}

TEST_P(EmbeddingKernelTest, GradientSumsTheSamplesOfEachRow) {
  for (const Shard& shard : kShards) {
    for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const Shape& shape : {Shape{7, 101}, Shape{5000}}) {
        if (shape.size() == 1 && shard.width * shard.rows > 800) continue;  // for time
        TestTensor ids = RandomIndices(shape, -3, shard.vocabulary + 3, 2);
        Shape dy_shape = shape;
        dy_shape.push_back(shard.width);
        TestTensor dy = RandomTensor(GetParam(), dy_shape, 3);
        auto dtable = RunKernel("embedding_grad", {}, {ids, dy}, {shard.Slice(out)});
        std::vector<double> expected(shard.rows * shard.width, 0.0);
        for (int64_t i = 0; i < ids.size(); ++i) {
          int64_t row = static_cast<int64_t>(ids[i]) - shard.offset;
          if (row < 0 || row >= shard.rows) continue;
          for (int64_t j = 0; j < shard.width; ++j)
            expected[row * shard.width + j] += dy[i * shard.width + j];
        }
        ExpectClose(dtable[0], expected, 2);
      }
    }
  }
}

}  // namespace
}  // namespace weir::kernels
