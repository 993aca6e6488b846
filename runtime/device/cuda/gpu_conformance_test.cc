// The suites of devices and of their memories on the device of runtime/device/cuda. With
// WEIR_TEST_DEVICE=cuda the device is a GPU over the real CUDA runtime; else CUDA is emulated. The
// suites that know more of the emulation are in cuda_device_test.cc.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "runtime/device/device_conformance.h"
#include "runtime/device/device_factory.h"
#include "runtime/device/memory_conformance.h"

namespace weir::device {
namespace {

std::string Kind() {
  const char* const kind = std::getenv("WEIR_TEST_DEVICE");
  return kind != nullptr && *kind != 0 ? kind : "cuda-emulated";
}

std::unique_ptr<Device> MakeNamed(int num_queues, int depth) {
  DeviceOptions options;
  options.kind = Kind();
  options.num_queues = num_queues;
  options.depth = depth;
  absl::StatusOr<std::unique_ptr<Device>> made = MakeDevice(options);
  if (!made.ok()) ADD_FAILURE() << made.status();
  return *std::move(made);
}

template <int num_queues, int depth>
class NamedFixture final : public DeviceFixture {
 public:
  Device* device() override { return device_.get(); }
  void WorkUntilIdle() override {
    for (const QueueId queue : IdRange<QueueId>(num_queues)) {
      ASSERT_TRUE(device_->queue(queue).Finish().ok());
      device_->NumDone(queue);
    }
  }

 private:
  const std::unique_ptr<Device> device_ = MakeNamed(num_queues, depth);
};

template <typename Fixture>
std::unique_ptr<DeviceFixture> Make() {
  return std::make_unique<Fixture>();
}

INSTANTIATE_TEST_SUITE_P(Named, DeviceConformance,
                         ::testing::Values(&Make<NamedFixture<1, 1>>, &Make<NamedFixture<1, 64>>,
                                           &Make<NamedFixture<2, 2>>, &Make<NamedFixture<4, 1>>,
                                           &Make<NamedFixture<4, 64>>,
                                           &Make<NamedFixture<4, 256>>));

// The memory of a device of its own.
class NamedMemory final : public DeviceMemory {
 public:
  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) override {
    return memory_.Allocate(bytes, reach);
  }
  absl::StatusOr<DeviceBlock> Adopt(char* base, int64_t bytes) override {
    return memory_.Adopt(base, bytes);
  }
  bool host_visible() const override { return memory_.host_visible(); }
  void CopyIn(char* to, const void* from, int64_t bytes) override {
    memory_.CopyIn(to, from, bytes);
  }
  void CopyOut(void* to, const char* from, int64_t bytes) const override {
    memory_.CopyOut(to, from, bytes);
  }
  void Copy(char* to, const char* from, int64_t bytes) override { memory_.Copy(to, from, bytes); }
  void Zero(char* at, int64_t bytes) override { memory_.Zero(at, bytes); }

 private:
  const std::unique_ptr<Device> device_ = MakeNamed(1, 1);
  DeviceMemory& memory_ = device_->memory();
};

std::unique_ptr<DeviceMemory> MakeMemory() { return std::make_unique<NamedMemory>(); }

INSTANTIATE_TEST_SUITE_P(Named, MemoryConformance, ::testing::Values(&MakeMemory));

TEST(NamedDevice, IsTheOneThatWasAskedFor) {
  const std::unique_ptr<Device> device = MakeNamed(2, 3);
  EXPECT_EQ(device->kind(), Kind());
  EXPECT_EQ(device->num_queues(), 2);
  EXPECT_EQ(device->depth(), 3);
}

// Copies of a chain with other addresses each time.
TEST(NamedDevice, ARowOfCopiesIsDoneAsAGraph) {
  const std::unique_ptr<Device> device = MakeNamed(1, 64);
  const DeviceBlock block = *device->memory().Allocate(4096, DeviceMemory::Reach::kDevice);
  DeviceQueue& queue = device->queue(QueueId(0));
  const std::unique_ptr<DeviceChain> chain = queue.MakeChain(DeviceQueue::Chains::kMust);
  ASSERT_NE(chain, nullptr);
  constexpr int64_t kBytes = sizeof(int64_t);
  for (int64_t round = 0; round < 12; ++round) {
    const int64_t first = 100 + round;
    char* const slot = block.base() + round % 3 * 64;
    char* const last = block.base() + 2048 + round * kBytes;
    device->memory().CopyIn(slot, &first, kBytes);
    ASSERT_TRUE(chain
                    ->Run([&] {
                      queue.Copy(block.base() + 1024, slot, kBytes);
                      queue.Copy(last, block.base() + 1024, kBytes);
                      return absl::OkStatus();
                    })
                    .ok());
    ASSERT_TRUE(queue.Finish().ok());
    int64_t found = 0;
    device->memory().CopyOut(&found, last, kBytes);
    EXPECT_EQ(found, first);
  }
}

}  // namespace
}  // namespace weir::device
