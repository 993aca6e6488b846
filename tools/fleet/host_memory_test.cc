#include "tools/fleet/host_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(HostMemoryTest, RanksThatFitAreNotRefused) {
  EXPECT_TRUE(CheckHostMemory(
                  {{"a", "m1", 16 * kGiB, 4, 16 * kGiB}, {"b", "m2", 8 * kGiB, 1, kGiB}}, 4 * kGiB)
                  .ok());
  EXPECT_TRUE(CheckHostMemory({{"a", "m1", 0, 4, 16 * kGiB}}, 4 * kGiB).ok()) << "not known";
}

TEST(HostMemoryTest, EachHostWithTooLittleIsNamed) {
  const std::string text(
      CheckHostMemory({{"a", "m1", 16 * kGiB, 4, 12 * kGiB}, {"b", "m2", 8 * kGiB, 4, 12 * kGiB}},
                      3 * kGiB)
          .message());
  EXPECT_THAT(text,
              HasSubstr("W0884 at memory of host 'b': expected at most 8.0 GiB; found 12.0 GiB "
                        "planned for 4 ranks; one rank takes up to 3.0 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("'a'")));
}

TEST(HostMemoryTest, PartsOfOneMachineShareItsMemory) {
  const std::string text(
      CheckHostMemory({{"a", "m1", 16 * kGiB, 2, 9 * kGiB}, {"b", "m1", 16 * kGiB, 2, 9 * kGiB}},
                      5 * kGiB)
          .message());
  EXPECT_THAT(text, HasSubstr("memory of host 'a', 'b': expected at most 16.0 GiB; found 18.0 GiB "
                              "planned for 4 ranks"));
}

}  // namespace
}  // namespace weir::fleet
