#include "runtime/base/update_rate.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(UpdateRateTest, CountsTheStepsThatUpdate) {
  for (int64_t every : {1, 2, 3, 7}) {
    for (int64_t phase = 0; phase < every; ++phase) {
      const UpdateRate rate{every, phase, 2};
      int64_t updates = 0, last = 0;
      for (int64_t step = 0; step < 40; ++step) {
        EXPECT_EQ(rate.UpdatesBefore(step), updates);
        EXPECT_EQ(rate.OptimizerStep(step), updates - 2);
        EXPECT_EQ(rate.IsBetweenUpdates(step), step == last) << step;
        EXPECT_EQ(rate.RoundDown(step), last);
        if (step % every != phase) continue;
        for (int64_t steps = last + 1; steps <= step + 1; ++steps)
          EXPECT_EQ(rate.RoundUp(steps), step + 1) << steps;
        ++updates;
        last = step + 1;
      }
    }
  }
  EXPECT_EQ((UpdateRate{4, 1, 0}).RoundUp(0), 0);
}

TEST(UpdateRateTest, DefaultsLeaveNoTraceInAttributes) {
  Attributes attributes;
  UpdateRate().ToAttributes(&attributes);
  EXPECT_TRUE(attributes.map().empty());
  UpdateRate{4, 3, 1}.ToAttributes(&attributes);
  const UpdateRate read = UpdateRate::FromAttributes(attributes);
  EXPECT_EQ(read.every, 4);
  EXPECT_EQ(read.phase, 3);
  EXPECT_EQ(read.delay, 1);
}

}  // namespace
}  // namespace weir
