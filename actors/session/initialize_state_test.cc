#include "actors/session/initialize_state.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace weir::actors {
namespace {

constexpr PlanInitializer kNormal{PlanInitializer::Kind::kNormal, 0.5, 1.0};
constexpr PlanInitializer kUniform{PlanInitializer::Kind::kUniform, -1, 3};

std::vector<float> Fill(const TensorSlice& slice, const PlanInitializer& init, uint64_t seed = 1,
                        const std::string& name = "w") {
  std::vector<float> values(slice.num_elements(), -7);
  EXPECT_TRUE(InitializeState(seed, name, slice, init, values.data()).ok());
  return values;
}

TEST(InitializeStateTest, AShardHoldsTheElementsOfTheWholeTensor) {
  const std::vector<float> whole = Fill(TensorSlice::Whole(DType::kF32, {4, 6, 5}), kNormal);
  TensorSlice shard;
  shard.shape = {2, 3, 4};
  shard.offset = {1, 2, 1};
  shard.global_shape = {4, 6, 5};
  const std::vector<float> part = Fill(shard, kNormal);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k)
        EXPECT_EQ(part[(i * 3 + j) * 4 + k], whole[((i + 1) * 6 + j + 2) * 5 + k + 1]);
    }
  }
}

TEST(InitializeStateTest, NumbersFollowTheAskedDistribution) {
  double sum = 0, squares = 0;
  const std::vector<float> normal = Fill(TensorSlice::Whole(DType::kF32, {10000}), kNormal);
  for (float x : normal) sum += x, squares += x * x;
  EXPECT_NEAR(sum / 10000, 1.0, 0.02);
  EXPECT_NEAR(std::sqrt(squares / 10000 - 1), 0.5, 0.02);
  for (float x : Fill(TensorSlice::Whole(DType::kF32, {1000}), kUniform))
    EXPECT_TRUE(x >= -1 && x <= 3);
}

TEST(InitializeStateTest, NameAndSeedGiveOtherNumbers) {
  const TensorSlice slice = TensorSlice::Whole(DType::kF32, {8});
  EXPECT_NE(Fill(slice, kNormal, 1, "a"), Fill(slice, kNormal, 1, "b"));
  EXPECT_NE(Fill(slice, kNormal, 1, "a"), Fill(slice, kNormal, 2, "a"));
  EXPECT_EQ(Fill(slice, kNormal, 1, "a"), Fill(slice, kNormal, 1, "a"));
}

TEST(InitializeStateTest, ConstantsEmptyShardsAndScalars) {
  EXPECT_EQ(Fill(TensorSlice::Whole(DType::kF32, {2}), {}), (std::vector<float>{0, 0}));
  EXPECT_EQ(Fill(TensorSlice::Whole(DType::kF32, {}), {PlanInitializer::Kind::kOnes}),
            std::vector<float>{1});
  EXPECT_TRUE(Fill(TensorSlice::Whole(DType::kF32, {0, 3}), kNormal).empty());
  uint16_t half = 0;
  ASSERT_TRUE(InitializeState(1, "h", TensorSlice::Whole(DType::kBF16, {1}),
                              {PlanInitializer::Kind::kOnes}, &half)
                  .ok());
  EXPECT_EQ(half, 0x3f80);
  int32_t integer = 0;
  EXPECT_FALSE(
      InitializeState(1, "i", TensorSlice::Whole(DType::kI32, {1}), kNormal, &integer).ok());
}

}  // namespace
}  // namespace weir::actors
