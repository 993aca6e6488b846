#include "tools/train/warm_pace.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::train {
namespace {

TEST(WarmPaceTest, TheFirstBurstDoesNotCount) {
  WarmPace pace;
  EXPECT_EQ(pace.SecondsFor(3), std::nullopt);
  pace.Note(1, 60);
  EXPECT_EQ(pace.SecondsFor(3), std::nullopt);
  EXPECT_EQ(pace.SecondsFor(0), 0);
  pace.Note(2, 1);
  pace.Note(2, 3);
  EXPECT_EQ(pace.SecondsFor(3), 3);
}

}  // namespace
}  // namespace weir::train
