#include "tools/train/replica_check.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/replica_watch.h"

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

// Has two replicas of a weight, and does nothing else.
class TwoReplicas final : public ForwardingRunner {
 public:
  TwoReplicas() : ForwardingRunner(nullptr) {}
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override {
    return std::vector<ShardSum>{Sum(0, "w", 7, kWhole), Sum(1, "w", differ ? 8 : 7, kWhole)};
  }
  bool differ = false;
};

TEST(ReplicaWatchTest, TheErrorClaimsOnlyWhatWasCompared) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto never = [](int64_t step) {
    return AllOf(
        HasSubstr(absl::StrCat("nobody has compared the ranks since the start at step ", step)),
        HasSubstr(absl::StrCat("resume from a checkpoint of step ", step, " or before")));
  };
  const auto equal_after = [](int64_t step) {
    return AllOf(
        HasSubstr(absl::StrCat("the ranks were last compared, and equal, after step ", step)),
        HasSubstr(absl::StrCat("resume from a checkpoint of step ", step, " or before")));
  };
  TwoReplicas ranks;
  ReplicaWatch watch(10, 40);
  const auto look = [&](int64_t step, bool differ) {
    ranks.differ = differ;
    return std::string(watch.Look(step, /*before_checkpoint=*/false, &ranks).message());
  };
  EXPECT_EQ(look(40, true), "") << "no step is done";
  EXPECT_THAT(look(50, true), never(40));
  EXPECT_EQ(look(60, false), "");
  EXPECT_EQ(look(65, true), "") << "it is not time";
  EXPECT_THAT(look(70, true), equal_after(60));
  watch.GoBackTo(60);
  EXPECT_THAT(look(60, true), equal_after(60));
  // The steps that were compared are done again.
  watch.GoBackTo(55);
  EXPECT_THAT(look(55, true), never(55));
  watch.GoBackTo(58);
  EXPECT_THAT(look(58, true), never(55));
  watch.GoBackTo(52);
  EXPECT_THAT(look(52, true), never(52));
  EXPECT_EQ(look(65, false), "");
  EXPECT_THAT(look(75, true), equal_after(65));
}

TEST(ReplicaWatchTest, ARunThatNobodyHasComparedStartsAgain) {
  TwoReplicas ranks;
  ranks.differ = true;
  EXPECT_THAT(
      std::string(ReplicaWatch(10, 0).Look(3, /*before_checkpoint=*/true, &ranks).message()),
      ::testing::HasSubstr("start the run again"));
}

}  // namespace
}  // namespace weir::train
