#include "tools/train/shared_cores.h"

#include "gtest/gtest.h"

namespace weir::train {
namespace {

TEST(SharedCoresTest, SaysHowManyDevicesShareHowManyCores) {
  EXPECT_EQ(SharedCoresText(4, 2),
            "4 devices share the 2 cores of this machine, so they are no faster than 2 devices");
  EXPECT_EQ(SharedCoresText(2, 1),
            "2 devices share the one core of this machine, so they are no faster than one device");
  EXPECT_EQ(SharedCoresText(2, 2), "");
  EXPECT_EQ(SharedCoresText(1, 8), "");
  EXPECT_GE(NumCores(), 1);
}

}  // namespace
}  // namespace weir::train
