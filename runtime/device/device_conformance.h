// One suite of tests that every device must pass. A device joins by instantiating it with a
// factory; WorkUntilIdle lets issued work be done, by whatever means the device has.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/id_vector.h"
#include "runtime/device/device.h"

namespace weir::device {

class DeviceFixture {
 public:
  virtual ~DeviceFixture() = default;
  virtual Device* device() = 0;
  virtual void WorkUntilIdle() = 0;
};
using DeviceFixtureFactory = std::unique_ptr<DeviceFixture> (*)();

class DeviceConformance : public ::testing::TestWithParam<DeviceFixtureFactory> {
 public:
  void SetUp() override {
    fixture_ = GetParam()();
    block_ = *device().memory().Allocate(kNumbers * kBytes, DeviceMemory::Reach::kDevice);
  }

  static constexpr int kNumbers = 128;
  static constexpr int64_t kBytes = sizeof(int64_t);

  // Puts a copy of number `from` to number `to` into a queue.
  struct CopyWork {
    DeviceConformance* test;
    int from, to;
    QueueId queue;
    static void Run(void* context) {
      CopyWork& work = *static_cast<CopyWork*>(context);
      work.test->device()
          .queue(work.queue)
          .Copy(work.test->at(work.to), work.test->at(work.from), kBytes);
    }
  };

  Device& device() { return *fixture_->device(); }
  char* at(int number) { return block_.base() + number * kBytes; }
  void Set(int number, int64_t value) { device().memory().CopyIn(at(number), &value, kBytes); }
  int64_t Get(int number) {
    int64_t value = 0;
    device().memory().CopyOut(&value, at(number), kBytes);
    return value;
  }
  // Waits for room. Work that was done on return counts as done.
  void Launch(CopyWork* work) {
    if (num_under_way() == device().depth()) fixture_->WorkUntilIdle();
    ASSERT_LT(num_under_way(), device().depth());
    if (device().Launch({&CopyWork::Run, work, 10, work->queue}) == Device::Launched::kDone) {
      EXPECT_EQ(Get(work->to), Get(work->from)) << "done means done";
      return;
    }
    issued_.resize(device().num_queues());
    ++issued_[work->queue];
  }
  int num_under_way() {
    int64_t under_way = 0;
    for (const QueueId queue : issued_.ids()) under_way += issued_[queue] - device().NumDone(queue);
    return static_cast<int>(under_way);
  }

  std::unique_ptr<DeviceFixture> fixture_;
  DeviceBlock block_;
  IdVector<QueueId, int64_t> issued_;
};

TEST_P(DeviceConformance, DoesTheWorkOfAQueueInOrder) {
  for (const QueueId queue : IdRange<QueueId>(device().num_queues())) {
    Set(0, 1000 + queue.value());
    for (int i = 1; i < kNumbers; ++i) Set(i, i);
    std::vector<CopyWork> works;
    for (int i = 1; i < kNumbers; ++i) works.push_back({this, i - 1, i, queue});
    for (CopyWork& work : works) Launch(&work);
    fixture_->WorkUntilIdle();
    EXPECT_EQ(num_under_way(), 0) << "all works are done, each once";
    EXPECT_EQ(Get(kNumbers - 1), 1000 + queue.value())
        << "each copy reads what the one before wrote";
  }
  EXPECT_TRUE(device().fault().ok());
}

TEST_P(DeviceConformance, TellsWhenWorksBeganAndEnded) {
  const QueueId queue(device().num_queues() - 1);
  int64_t last_end = 0;
  for (int round = 0; round < 20; ++round) {
    CopyWork work{this, 0, 1, queue};
    Launch(&work);
    fixture_->WorkUntilIdle();
    if (issued_.empty()) return;  // done on return
    const WorkTimes times = device().TimesOf({queue, issued_[queue]});
    EXPECT_LE(last_end, times.begin) << "after the work before";
    EXPECT_LE(times.begin, times.end);
    last_end = times.end;
  }
}

TEST_P(DeviceConformance, AQueueThatAwaitsAPositionBeginsAfterIt) {
  for (int round = 0; round < 20; ++round) {
    const QueueId writer(round % device().num_queues());
    const QueueId reader((round + 1) % device().num_queues());
    if (writer == reader || device().depth() < 2) return;
    Set(0, round);
    Set(1, -1);
    Set(2, -1);
    CopyWork write{this, 0, 1, writer}, read{this, 1, 2, reader};
    Launch(&write);
    device().Await(reader, {writer, issued_[writer]});
    Launch(&read);
    fixture_->WorkUntilIdle();
    EXPECT_EQ(Get(2), round);
    EXPECT_LE(device().TimesOf({writer, issued_[writer]}).end,
              device().TimesOf({reader, issued_[reader]}).begin);
  }
}

TEST_P(DeviceConformance, AQueueCopiesOutAndFillsInItsOrder) {
  struct Work {
    DeviceConformance* test;
    int64_t before = 0, after = 0;
    static void Run(void* context) {
      Work& work = *static_cast<Work*>(context);
      DeviceQueue& queue = work.test->device().queue(QueueId(0));
      queue.CopyOut(&work.before, work.test->at(0), kBytes);
      EXPECT_TRUE(queue
                      .Fill(work.test->at(0), kBytes,
                            [](char* host) {
                              const int64_t value = 8;
                              std::memcpy(host, &value, kBytes);
                              return absl::OkStatus();
                            })
                      .ok());
      queue.CopyOut(&work.after, work.test->at(0), kBytes);
      EXPECT_FALSE(
          queue.Fill(work.test->at(1), kBytes, [](char*) { return absl::AbortedError("no"); })
              .ok());
    }
  };
  Set(0, 7);
  Work work{this};
  device().Launch({&Work::Run, &work, 10, QueueId(0)});
  ASSERT_TRUE(device().queue(QueueId(0)).Finish().ok());
  EXPECT_EQ(work.before, 7);
  EXPECT_EQ(work.after, 8);
}

TEST_P(DeviceConformance, AnIdleDeviceHasDoneNothing) {
  EXPECT_GE(device().depth(), 1);
  EXPECT_GE(device().num_queues(), 1);
  fixture_->WorkUntilIdle();
  for (const QueueId queue : IdRange<QueueId>(device().num_queues()))
    EXPECT_EQ(device().NumDone(queue), 0);
}

TEST_P(DeviceConformance, ItsTeamHasAtLeastTheLeader) {
  ThreadTeam* team = device().team();
  EXPECT_TRUE(team == nullptr || team->num_threads() >= 1);
}

}  // namespace weir::device
