#include "runtime/device/cpu_device.h"
#include "runtime/device/device_conformance.h"
#include "runtime/device/device_factory.h"
#include "runtime/device/memory_conformance.h"
#include "runtime/device/queue_clock.h"
#include "runtime/device/walled_device.h"
#include "runtime/device/walled_memory.h"

namespace weir::device {
namespace {

class CpuFixture final : public DeviceFixture {
 public:
  Device* device() override { return &device_; }
  void WorkUntilIdle() override {}

 private:
  CpuDevice device_{2};
};

template <int num_queues, int depth, WalledDeviceOptions::Drive drive>
class WalledFixture final : public DeviceFixture {
 public:
  WalledFixture()
      : device_({2, num_queues, depth, 7, WalledDeviceOptions::Memory::kWalled, drive}) {}
  Device* device() override { return &device_; }
  void WorkUntilIdle() override {
    for (const QueueId queue : IdRange<QueueId>(num_queues)) {
      while (device_.num_pending(queue) > 0) {
        if (drive == WalledDeviceOptions::Drive::kOwner) {
          device_.StepAll();
          device_.CompleteOldest(queue);
        }
        device_.NumDone(queue);
      }
    }
  }

 private:
  WalledDevice device_;
};

template <typename Fixture>
std::unique_ptr<DeviceFixture> Make() {
  return std::make_unique<Fixture>();
}

constexpr auto kPolls = WalledDeviceOptions::Drive::kPolls;
constexpr auto kOwner = WalledDeviceOptions::Drive::kOwner;

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, ::testing::Values(&Make<CpuFixture>));
INSTANTIATE_TEST_SUITE_P(
    Walled, DeviceConformance,
    ::testing::Values(&Make<WalledFixture<1, 1, kPolls>>, &Make<WalledFixture<1, 64, kPolls>>,
                      &Make<WalledFixture<2, 2, kPolls>>, &Make<WalledFixture<3, 64, kPolls>>,
                      &Make<WalledFixture<4, 64, kPolls>>, &Make<WalledFixture<1, 1, kOwner>>,
                      &Make<WalledFixture<4, 64, kOwner>>));

template <typename Memory>
std::unique_ptr<DeviceMemory> MakeMemory() {
  return std::make_unique<Memory>();
}

INSTANTIATE_TEST_SUITE_P(Host, MemoryConformance, ::testing::Values(&MakeMemory<HostMemory>));
INSTANTIATE_TEST_SUITE_P(Walled, MemoryConformance, ::testing::Values(&MakeMemory<WalledMemory>));

TEST(WalledMemoryDeathTest, TheHostMayNotTouchIt) {
  WalledMemory memory;
  const DeviceBlock block = *memory.Allocate(4096, DeviceMemory::Reach::kDevice);
  volatile char* const address = block.base();
  EXPECT_DEATH(*address = 1, "");
  EXPECT_DEATH((void)*address, "");
}

TEST(WalledMemoryDeathTest, NoBlockTakesThePlaceOfOneThatIsGone) {
  WalledMemory memory;
  char* gone = nullptr;
  {
    const DeviceBlock block = *memory.Allocate(4096, DeviceMemory::Reach::kDevice);
    gone = block.base();
  }
  const DeviceBlock other = *memory.Allocate(4096, DeviceMemory::Reach::kDevice);
  EXPECT_NE(other.base(), gone);
  char byte = 0;
  EXPECT_DEATH(memory.CopyOut(&byte, gone, 1), "");
}

TEST(DeviceFactory, MakesTheKindsItNamesAndRefusesOthers) {
  for (const std::string& kind : DeviceKinds()) {
    if (!CheckDeviceIsHere(kind).ok()) continue;
    DeviceOptions options;
    options.kind = kind;
    options.num_queues = LimitsOf(kind).num_queues;
    options.depth = LimitsOf(kind).depth;
    const std::unique_ptr<Device> device = *MakeDevice(options);
    EXPECT_EQ(device->kind(), kind);
    EXPECT_EQ(device->num_queues(), options.num_queues);
    EXPECT_EQ(device->depth(), options.depth);
  }
  EXPECT_EQ(MakeDevice({"cpus"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DeviceFactory, TakesAGpuOnlyWhereThereIsOne) {
  const bool has_gpu = CheckDeviceIsHere("cuda").ok();
  EXPECT_EQ(ResolveDeviceKind("auto"), has_gpu ? "cuda" : "cpu");
  EXPECT_EQ(ResolveDeviceKind(""), "cpu");
  EXPECT_EQ(ResolveDeviceKind("walled"), "walled");
  DeviceOptions options;
  options.kind = "cuda";
  EXPECT_EQ(MakeDevice(options).status(), CheckDeviceIsHere("cuda"));
}

void Nothing(void*) {}

WalledDevice OwnedDevice(int num_queues, int depth) {
  return WalledDevice({1, num_queues, depth, 1, WalledDeviceOptions::Memory::kHost, kOwner});
}

TEST(WalledDeviceTest, WorkTakesItsCostInVirtualTimeWithoutGaps) {
  WalledDevice device = OwnedDevice(1, 2);
  device.NotBefore(100);
  device.Launch({&Nothing, nullptr, 10});
  device.Launch({&Nothing, nullptr, 5});
  EXPECT_EQ(device.oldest_done_ns(QueueId(0)), 110);
  EXPECT_EQ(device.NumDone(QueueId(0)), 0);
  device.CompleteOldest(QueueId(0));
  EXPECT_EQ(device.NumDone(QueueId(0)), 1);
  EXPECT_EQ(device.oldest_done_ns(QueueId(0)), 115);
  device.CompleteOldest(QueueId(0));
  EXPECT_EQ(device.NumDone(QueueId(0)), 2);
  device.NotBefore(200);
  device.Launch({&Nothing, nullptr, 1});
  EXPECT_EQ(device.oldest_done_ns(QueueId(0)), 201);
}

TEST(WalledDeviceTest, QueuesWorkBesideEachOtherAndAwaitEachOtherInVirtualTime) {
  WalledDevice device = OwnedDevice(3, 8);
  device.Launch({&Nothing, nullptr, 10, QueueId(0)});
  device.Launch({&Nothing, nullptr, 4, QueueId(1)});
  EXPECT_EQ(device.oldest_done_ns(QueueId(1)), 4);
  device.Await(QueueId(2), {QueueId(0), 1});
  device.Launch({&Nothing, nullptr, 3, QueueId(2)});
  EXPECT_EQ(device.oldest_done_ns(QueueId(2)), 13);
  EXPECT_FALSE(device.CanComplete(QueueId(2)));
  EXPECT_TRUE(device.CanComplete(QueueId(1)));
  device.CompleteOldest(QueueId(0));
  EXPECT_TRUE(device.CanComplete(QueueId(2)));
  device.CompleteOldest(QueueId(2));
  EXPECT_EQ(device.TimesOf({QueueId(2), 1}).begin, 10);
  EXPECT_EQ(device.TimesOf({QueueId(2), 1}).end, 13);
}

TEST(WalledDeviceTest, WorkThatIsDoneEarlyStillEndsInItsVirtualTime) {
  WalledDevice device = OwnedDevice(2, 8);
  device.Launch({&Nothing, nullptr, 10, QueueId(0)});
  device.StepAll();
  device.Await(QueueId(1), {QueueId(0), 1});
  device.Launch({&Nothing, nullptr, 3, QueueId(1)});
  EXPECT_TRUE(device.CanComplete(QueueId(1)));
  EXPECT_EQ(device.oldest_done_ns(QueueId(1)), 13);
}

TEST(WalledDeviceTest, AFailureStaysAndWhatFollowsIsNotDone) {
  WalledDevice device = OwnedDevice(1, 4);
  struct Work {
    WalledDevice* device;
    bool done = false;
    static void Fail(void* context) {
      Work& work = *static_cast<Work*>(context);
      auto& queue = static_cast<WalledQueue&>(work.device->queue(QueueId(0)));
      queue.Put(nullptr, [] { return absl::InternalError("broken"); });
      queue.Put(nullptr, [&work] {
        work.done = true;
        return absl::OkStatus();
      });
    }
  };
  Work work{&device};
  device.Launch({&Work::Fail, &work, 1, QueueId(0)});
  device.CompleteOldest(QueueId(0));
  EXPECT_EQ(device.fault().message(), "broken");
  EXPECT_FALSE(work.done);
}

TEST(QueueClockTest, AQueueWaitsForEachPositionAtMostOnce) {
  QueueClock clock(3);
  EXPECT_FALSE(clock.Advance(QueueId(0), {QueueId(1), 0})) << "before all work";
  EXPECT_FALSE(clock.Advance(QueueId(0), {QueueId(0), 5})) << "its own order";
  EXPECT_TRUE(clock.Advance(QueueId(0), {QueueId(1), 5}));
  EXPECT_FALSE(clock.Advance(QueueId(0), {QueueId(1), 5}));
  EXPECT_FALSE(clock.Advance(QueueId(0), {QueueId(1), 4}));
  EXPECT_TRUE(clock.Advance(QueueId(0), {QueueId(1), 6}));
  EXPECT_TRUE(clock.Advance(QueueId(2), {QueueId(1), 6})) << "each queue for itself";
  EXPECT_TRUE(clock.Advance(QueueId(0), {QueueId(2), 1}));
  clock.Reset();
  EXPECT_TRUE(clock.Advance(QueueId(0), {QueueId(2), 1}));
}

}  // namespace
}  // namespace weir::device
