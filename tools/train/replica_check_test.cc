#include "tools/train/replica_check.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weir::train {
namespace {

ShardSum Sum(int rank, const std::string& name, uint32_t crc, const TensorSlice& slice) {
  return {RankId(rank), name, slice, crc};
}

const TensorSlice kWhole = TensorSlice::Whole(DType::kF32, {4});

TensorSlice Half(int64_t offset) {
  TensorSlice slice = kWhole;
  slice.shape = {2};
  slice.offset = {offset};
  return slice;
}

TEST(ReplicaCheckTest, EqualReplicasAndShardsOfDifferentPlacesDoNotDiverge) {
  EXPECT_FALSE(FindDivergence({}).has_value());
  EXPECT_FALSE(FindDivergence({Sum(0, "w", 7, kWhole), Sum(1, "w", 7, kWhole),
                               Sum(0, "v", 1, Half(0)), Sum(1, "v", 2, Half(2))})
                   .has_value());
}

TEST(ReplicaCheckTest, ShardsOfDifferentPlacesAreNoReplicas) {
  EXPECT_FALSE(HasReplicas({Sum(0, "v", 1, Half(0)), Sum(1, "v", 2, Half(2))}));
  EXPECT_TRUE(HasReplicas({Sum(0, "v", 1, Half(0)), Sum(1, "v", 2, Half(0))}));
}

TEST(ReplicaCheckTest, TheMinorityIsNamed) {
  const std::optional<Divergence> found =
      FindDivergence({Sum(3, "w", 7, kWhole), Sum(2, "w", 8, kWhole), Sum(1, "w", 7, kWhole),
                      Sum(0, "w", 7, kWhole), Sum(0, "z", 1, kWhole), Sum(1, "z", 2, kWhole)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(DivergenceText(*found),
            "rank 2 has other bits of 'w' than ranks 0, 1, 3; 2 weights differ");
}

TEST(ReplicaCheckTest, TwoReplicasAccuseNeither) {
  const std::optional<Divergence> found =
      FindDivergence({Sum(0, "w", 7, Half(2)), Sum(1, "w", 8, Half(2)), Sum(2, "w", 9, Half(0))});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(DivergenceText(*found),
            "ranks 0, 1 do not have the same bits of 'w' (f32[2] at [2] of [4]), and no bits have "
            "a majority; 1 weight differs");
}

}  // namespace
}  // namespace weir::train
