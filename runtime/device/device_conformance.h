// What every device must do, as one suite. A device joins by instantiating it with a
// factory; WorkUntilIdle lets queued work complete, by whatever means the device has.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/device/device.h"

namespace weir {

class DeviceFixture {
 public:
  virtual ~DeviceFixture() = default;
  virtual Device* device() = 0;
  virtual void WorkUntilIdle() = 0;
};
using DeviceFixtureFactory = std::unique_ptr<DeviceFixture> (*)();

class DeviceConformance : public ::testing::TestWithParam<DeviceFixtureFactory> {
 protected:
  struct Step {
    std::vector<int>* log;
    int number;
  };
  static void Log(void* context) {
    Step* step = static_cast<Step*>(context);
    step->log->push_back(step->number);
  }
};

TEST_P(DeviceConformance, RunsEveryWorkOnceAndInOrder) {
  std::unique_ptr<DeviceFixture> fixture = GetParam()();
  std::vector<int> log, expected;
  std::vector<Step> steps;
  for (int i = 0; i < 100; ++i) steps.push_back({&log, i});
  int completions = 0, queued = 0;
  for (Step& step : steps) {
    expected.push_back(step.number);
    if (fixture->device()->Launch({&Log, &step, 10}) == Device::Launched::kCompleted) {
      ++completions;
      EXPECT_EQ(log.size(), expected.size()) << "completed means done";
    } else if (++queued == fixture->device()->queue_depth()) {
      fixture->WorkUntilIdle();
      while (fixture->device()->TakeCompletion()) ++completions, --queued;
      EXPECT_EQ(queued, 0);
    }
  }
  fixture->WorkUntilIdle();
  while (fixture->device()->TakeCompletion()) ++completions;
  EXPECT_EQ(completions, 100) << "every work completes once";
  EXPECT_EQ(log, expected);
}

TEST_P(DeviceConformance, AnIdleDeviceHasNoCompletion) {
  std::unique_ptr<DeviceFixture> fixture = GetParam()();
  EXPECT_GE(fixture->device()->queue_depth(), 1);
  fixture->WorkUntilIdle();
  EXPECT_FALSE(fixture->device()->TakeCompletion());
}

TEST_P(DeviceConformance, ItsTeamHasAtLeastTheLeader) {
  std::unique_ptr<DeviceFixture> fixture = GetParam()();
  ThreadTeam* team = fixture->device()->team();
  EXPECT_TRUE(team == nullptr || team->num_threads() >= 1);
}

}  // namespace weir
