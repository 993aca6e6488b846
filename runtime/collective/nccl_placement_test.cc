#include "runtime/collective/nccl_placement.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const NcclPlacement& placement) {
  return std::string(CheckNcclPlacement(placement).message());
}

TEST(NcclPlacement, TakesOneProcessAndOneGpuForEachRank) {
  const NcclPlacement eight{"cuda", 8, 1, 8, 8};
  EXPECT_EQ(CheckNcclPlacement(eight), absl::OkStatus());
  EXPECT_EQ(CheckNcclPlacement({"cuda", 8, 1, 4, NcclPlacement::kGpusUnknown}), absl::OkStatus());
  EXPECT_EQ(CheckNcclPlacement({"cuda-emulated", 8, 8, 8, 0}), absl::OkStatus());
}

TEST(NcclPlacement, RefusesOtherDevices) {
  EXPECT_THAT(Refusal({"cpu", 2, 1, 2}), AllOf(HasSubstr("W0957"), HasSubstr("kind cpu")));
  EXPECT_THAT(Refusal({"", 2, 1, 2}), HasSubstr("kind cpu"));
}

TEST(NcclPlacement, RefusesSeveralRanksInOneProcess) {
  EXPECT_THAT(Refusal({"cuda", 4, 2, 4, 4}), AllOf(HasSubstr("W0958"), HasSubstr("--processes 4")));
}

TEST(NcclPlacement, RefusesTwoRanksOnOneGpuUnlessTheEnvironmentAllowsThem) {
  const NcclPlacement two{"cuda", 2, 1, 2, 1};
  EXPECT_THAT(Refusal(two), AllOf(HasSubstr("W0959"), HasSubstr("2 ranks on a host with 1 GPU")));
  ::setenv("WEIR_NCCL_SHARE_GPU", "1", 1);
  EXPECT_EQ(CheckNcclPlacement(two), absl::OkStatus());
  ShareGpu(RankId(1));
  EXPECT_STREQ(std::getenv("NCCL_HOSTID"), "weir rank 1");
  ::unsetenv("WEIR_NCCL_SHARE_GPU");
  ::unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace weir::collective
