#include "runtime/device/cpu_device.h"
#include "runtime/device/device_conformance.h"
#include "runtime/device/device_factory.h"
#include "runtime/device/fake_device.h"
#include "runtime/device/memory_conformance.h"

namespace weir {
namespace {

class CpuFixture final : public DeviceFixture {
 public:
  Device* device() override { return &device_; }
  void WorkUntilIdle() override {}

 private:
  CpuDevice device_{2};
};

class WalledFixture final : public DeviceFixture {
 public:
  Device* device() override { return &device_; }
  void WorkUntilIdle() override {}

 private:
  WalledDevice device_{2};
};

template <int depth, FakeDevice::RunBody run_body>
class FakeFixture final : public DeviceFixture {
 public:
  FakeFixture() { device_.set_run_body(run_body); }
  Device* device() override { return &device_; }
  void WorkUntilIdle() override {
    while (device_.num_pending() > 0) device_.CompleteOldest();
  }

 private:
  FakeDevice device_{depth};
};

template <typename Fixture>
std::unique_ptr<DeviceFixture> Make() {
  return std::make_unique<Fixture>();
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, ::testing::Values(&Make<CpuFixture>));
INSTANTIATE_TEST_SUITE_P(Walled, DeviceConformance, ::testing::Values(&Make<WalledFixture>));
INSTANTIATE_TEST_SUITE_P(
    Fake, DeviceConformance,
    ::testing::Values(&Make<FakeFixture<1, FakeDevice::RunBody::kAtLaunch>>,
                      &Make<FakeFixture<1, FakeDevice::RunBody::kAtCompletion>>,
                      &Make<FakeFixture<4, FakeDevice::RunBody::kAtCompletion>>));

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
  for (const std::string& kind : DeviceKinds()) EXPECT_EQ((*MakeDevice(kind, 1))->kind(), kind);
  EXPECT_EQ(MakeDevice("cpus", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

void Nothing(void*) {}

TEST(FakeDeviceTest, WorkTakesItsCostInVirtualTimeWithoutGaps) {
  FakeDevice device(2);
  device.AdvanceTo(100);
  device.Launch({&Nothing, nullptr, 10});
  device.Launch({&Nothing, nullptr, 5});
  EXPECT_EQ(device.oldest_done_ns(), 110);
  device.AdvanceTo(109);
  EXPECT_FALSE(device.TakeCompletion());
  device.AdvanceTo(110);
  EXPECT_TRUE(device.TakeCompletion());
  EXPECT_EQ(device.oldest_done_ns(), 115);
  device.CompleteOldest();
  EXPECT_TRUE(device.TakeCompletion());
  device.NotBefore(200);
  device.Launch({&Nothing, nullptr, 1});
  EXPECT_EQ(device.oldest_done_ns(), 201);
}

}  // namespace
}  // namespace weir
