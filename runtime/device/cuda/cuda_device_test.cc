#include "runtime/device/cuda/cuda_device.h"

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/base/problem.h"
#include "runtime/device/cuda/emulated_cuda_api.h"
#include "runtime/device/device_conformance.h"
#include "runtime/device/memory_conformance.h"

namespace weir::device {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::unique_ptr<CudaDevice> MakeEmulated(int num_queues, int depth, uint64_t seed = 1,
                                         int64_t clocks_good_ns = kSecond) {
  CudaDeviceOptions options;
  options.clocks_good_ns = clocks_good_ns;
  options.kind = "cuda-emulated";
  options.num_queues = num_queues;
  options.depth = depth;
  return *CudaDevice::Create(std::make_unique<EmulatedCudaApi>(seed), options);
}

template <int num_queues, int depth, int64_t clocks_good_ns = kSecond>
class EmulatedFixture final : public DeviceFixture {
 public:
  Device* device() override { return device_.get(); }
  void WorkUntilIdle() override {
    // Each question lets at most one stream do one step. What is left then is done in order.
    for (int question = 0; question < kQuestions; ++question) {
      for (const QueueId queue : IdRange<QueueId>(num_queues)) device_->NumDone(queue);
    }
    for (const QueueId queue : IdRange<QueueId>(num_queues))
      ASSERT_TRUE(device_->queue(queue).Finish().ok());
  }

 private:
  static constexpr int kQuestions = 300;
  const std::unique_ptr<CudaDevice> device_ =
      MakeEmulated(num_queues, depth, /*seed=*/1, clocks_good_ns);
};

template <typename Fixture>
std::unique_ptr<DeviceFixture> Make() {
  return std::make_unique<Fixture>();
}

INSTANTIATE_TEST_SUITE_P(
    Emulated, DeviceConformance,
    ::testing::Values(&Make<EmulatedFixture<1, 1>>, &Make<EmulatedFixture<2, 1>>,
                      &Make<EmulatedFixture<4, 1>>, &Make<EmulatedFixture<1, 2>>,
                      &Make<EmulatedFixture<2, 2>>, &Make<EmulatedFixture<3, 2>>,
                      &Make<EmulatedFixture<1, 64>>, &Make<EmulatedFixture<2, 64>>,
                      &Make<EmulatedFixture<3, 64>>, &Make<EmulatedFixture<4, 64>>,
                      &Make<EmulatedFixture<1, 1, 0>>, &Make<EmulatedFixture<3, 64, 0>>));

// The memory of a device of its own.
class OwnedMemory final : public DeviceMemory {
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
  const std::unique_ptr<CudaDevice> device_ = MakeEmulated(1, 1);
  DeviceMemory& memory_ = device_->memory();
};

std::unique_ptr<DeviceMemory> MakeMemory() { return std::make_unique<OwnedMemory>(); }

INSTANTIATE_TEST_SUITE_P(Emulated, MemoryConformance, ::testing::Values(&MakeMemory));

constexpr int64_t kBytes = sizeof(int64_t);

// A device, and a block of numbers in its memory.
class CudaDeviceTest : public ::testing::Test {
 protected:
  void Make(int num_queues, int depth, uint64_t seed) {
    block_ = DeviceBlock();
    device_ = MakeEmulated(num_queues, depth, seed);
    block_ = *device_->memory().Allocate(kNumbers * kBytes, DeviceMemory::Reach::kDevice);
  }
  char* at(int number) { return block_.base() + number * kBytes; }
  void Set(int number, int64_t value) { device_->memory().CopyIn(at(number), &value, kBytes); }
  int64_t Get(int number) {
    int64_t value = 0;
    device_->memory().CopyOut(&value, at(number), kBytes);
    return value;
  }
  void LaunchOn(int queue, std::function<void(DeviceQueue& queue)> body) {
    struct Work {
      std::function<void(DeviceQueue&)> body;
      DeviceQueue* queue;
      static void Run(void* context) {
        Work& work = *static_cast<Work*>(context);
        work.body(*work.queue);
      }
    };
    Work work{std::move(body), &device_->queue(QueueId(queue))};
    device_->Launch({&Work::Run, &work, 0, QueueId(queue)});
  }
  void LaunchCopy(int queue, int from, int to) {
    LaunchOn(queue, [&](DeviceQueue& of) { of.Copy(at(to), at(from), kBytes); });
  }
  void WorkUntilDone(int queue, int64_t number) {
    while (device_->NumDone(QueueId(queue)) < number) ASSERT_TRUE(device_->fault().ok());
  }

  static constexpr int kNumbers = 64;
  static constexpr uint64_t kSeeds = 40;
  std::unique_ptr<CudaDevice> device_;
  DeviceBlock block_;
};

TEST_F(CudaDeviceTest, AChainAcrossQueuesKeepsItsOrderUnderEverySeed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(4, 64, seed);
    Set(0, 77);
    for (int i = 0; i < 40; ++i) {
      const int queue = i % 4;
      if (i > 0) {
        const int before = (i - 1) % 4;
        device_->Await(QueueId(queue), {QueueId(before), (i - 1) / 4 + 1});
      }
      LaunchCopy(queue, i, i + 1);
    }
    WorkUntilDone(3, 10);
    EXPECT_EQ(Get(40), 77);
  }
}

// The places of the events go round many times, and each queue waits for the place that the other
// has just taken anew.
TEST_F(CudaDeviceTest, APlaceThatIsTakenAgainIsThatOfTheNewWork) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(2, 4, seed);
    for (int64_t round = 1; round <= 20; ++round) {
      Set(0, round);
      Set(1, -1);
      Set(2, -1);
      LaunchCopy(0, 0, 1);
      device_->Await(QueueId(1), {QueueId(0), round});
      LaunchCopy(1, 1, 2);
      WorkUntilDone(1, round);
      EXPECT_EQ(Get(2), round);
      WorkUntilDone(0, round);
      EXPECT_LE(device_->TimesOf({QueueId(0), round}).end,
                device_->TimesOf({QueueId(1), round}).begin);
    }
  }
}

TEST_F(CudaDeviceTest, TheLastWorksKeepTheirTimes) {
  constexpr int kDepth = 16;
  Make(1, kDepth, 1);
  for (int i = 0; i < kDepth; ++i) LaunchCopy(0, i, i + 1);
  WorkUntilDone(0, kDepth);
  for (int64_t work = 1; work < kDepth; ++work) {
    EXPECT_LE(device_->TimesOf({QueueId(0), work}).end,
              device_->TimesOf({QueueId(0), work + 1}).begin);
  }
}

// Each question lets the emulation do at most one step, and a work takes several steps.
TEST_F(CudaDeviceTest, TheHostLearnsOfEachWorkAsItIsDone) {
  constexpr int kDepth = 16;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(1, kDepth, seed);
    for (int i = 0; i < kDepth; ++i) LaunchCopy(0, i, i + 1);
    int64_t known = 0;
    for (int question = 0; question < 100'000 && known < kDepth; ++question) {
      const int64_t now = device_->NumDone(QueueId(0));
      ASSERT_LE(now, known + 1);
      known = now;
    }
    EXPECT_EQ(known, kDepth);
  }
}

TEST_F(CudaDeviceTest, WhatAQueueFillsStaysUntilItIsCopied) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(1, 16, seed);
    for (int i = 0; i < 12; ++i) {
      LaunchOn(0, [&](DeviceQueue& queue) {
        ASSERT_TRUE(queue
                        .Fill(at(i), kBytes,
                              [i](char* host) {
                                const int64_t value = 100 + i;
                                std::memcpy(host, &value, kBytes);
                                return absl::OkStatus();
                              })
                        .ok());
      });
    }
    WorkUntilDone(0, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(Get(i), 100 + i);
  }
}

TEST_F(CudaDeviceTest, WhatIsCopiedOutIsThereWhenTheWorkIsDone) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(2, 16, seed);
    std::vector<int64_t> out(12, -1);
    for (int i = 0; i < 12; ++i) {
      Set(20, 0);
      Set(i, 200 + i);
    }
    for (int i = 0; i < 12; ++i)
      LaunchOn(1, [&](DeviceQueue& queue) { queue.CopyOut(&out[i], at(i), kBytes); });
    for (int64_t done = 0; done < 12;) {
      const int64_t now = device_->NumDone(QueueId(1));
      for (; done < now; ++done) EXPECT_EQ(out[done], 200 + done);
    }
  }
}

TEST_F(CudaDeviceTest, TheHostTakesNoNewPinnedMemoryOnceAQueueHasEnough) {
  Make(1, 2, 1);
  std::set<char*> addresses;
  const auto fill = [&] {
    LaunchOn(0, [&](DeviceQueue& queue) {
      (void)queue.Fill(at(0), kBytes, [&](char* host) {
        addresses.insert(host);
        std::memset(host, 0, kBytes);
        return absl::OkStatus();
      });
    });
  };
  for (int64_t work = 1; work <= 50; ++work) {
    fill();
    WorkUntilDone(0, work);
  }
  EXPECT_EQ(addresses.size(), 1u);
}

// An emulation whose next question about an event meets a failure of the GPU.
class FailingApi final : public EmulatedCudaApi {
 public:
  explicit FailingApi(bool* fails) : EmulatedCudaApi(1), fails_(*fails) {}
  CudaResult QueryEvent(CudaEvent event) override {
    return fails_ ? static_cast<CudaResult>(700) : EmulatedCudaApi::QueryEvent(event);
  }

 private:
  const bool& fails_;
};

TEST(CudaDeviceFaultTest, AFailureStaysAndNamesTheWorksUnderWay) {
  bool fails = false;
  CudaDeviceOptions options;
  options.num_queues = 2;
  options.depth = 8;
  const std::unique_ptr<CudaDevice> device =
      *CudaDevice::Create(std::make_unique<FailingApi>(&fails), options);
  const auto nothing = [](void*) {};
  for (int i = 0; i < 3; ++i) device->Launch({nothing, nullptr, 0, QueueId(1)});
  fails = true;
  EXPECT_EQ(device->NumDone(QueueId(1)), 0);
  fails = false;
  EXPECT_EQ(device->NumDone(QueueId(1)), 0) << "nothing is done after a failure";
  const std::optional<Problem> problem = ProblemOf(device->fault());
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code, "W0553");
  EXPECT_THAT(problem->found, ::testing::HasSubstr("(700)"));
  EXPECT_THAT(problem->found, ::testing::HasSubstr("works 1 to 3 of queue 1 under way"));
}

TEST(CudaMemoryTest, NotEnoughMemorySaysHowMuchThereIs) {
  const std::unique_ptr<CudaDevice> device = MakeEmulated(1, 1);
  const auto block = device->memory().Allocate(int64_t{1} << 40, DeviceMemory::Reach::kDevice);
  EXPECT_THAT(block.status().message(),
              ::testing::AllOf(::testing::HasSubstr("W0520"), ::testing::HasSubstr("1.0 TiB"),
                               ::testing::HasSubstr("64.0 GiB) free")));
}

TEST(CudaMemoryTest, MemoryOfTheHostMayShareAPageWithWhatKernelsReachAlready) {
  const std::unique_ptr<CudaDevice> device = MakeEmulated(1, 1);
  std::vector<char> memory(5 * 4096);
  const auto first = device->memory().Adopt(memory.data() + 100, 5000);
  const auto second = device->memory().Adopt(memory.data() + 5200, 9000);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->base(), memory.data() + 5200);
}

TEST(EmulatedCudaApiTest, WithoutAWaitSomeSeedShowsTheWrongOrder) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    EmulatedCudaApi api(seed);
    CudaStream first, second;
    api.CreateStream(CudaApi::Priority::kNormal, &first);
    api.CreateStream(CudaApi::Priority::kNormal, &second);
    CudaEvent end;
    api.CreateEvent(&end);
    int64_t a = 1, b = 0, c = 0;
    api.Copy(&b, &a, kBytes, first);
    api.Copy(&c, &b, kBytes, second);  // without a wait
    api.RecordEvent(end, second);
    while (api.QueryEvent(end) == CudaResult::kNotReady) continue;
    wrong += c != 1;
    api.SynchronizeStream(first);
  }
  EXPECT_GT(wrong, 5);
  EXPECT_LT(wrong, 40);
}

TEST(EmulatedCudaApiTest, AWaitIsForTheRecordThatWasTheLatest) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    EmulatedCudaApi api(seed);
    CudaStream first, second;
    api.CreateStream(CudaApi::Priority::kNormal, &first);
    api.CreateStream(CudaApi::Priority::kNormal, &second);
    CudaEvent event, end;
    api.CreateEvent(&event);
    api.CreateEvent(&end);
    int64_t a = 1, b = 0, c = 0;
    api.Copy(&b, &a, kBytes, first);
    api.RecordEvent(event, first);
    api.WaitEvent(second, event);
    api.RecordEvent(event, second);  // does not change what `second` waits for
    api.Copy(&c, &b, kBytes, second);
    api.RecordEvent(end, second);
    while (api.QueryEvent(end) == CudaResult::kNotReady) continue;
    EXPECT_EQ(c, 1);
    EXPECT_EQ(api.DestroyEvent(event), CudaResult::kSuccess);
    EXPECT_EQ(api.WaitEvent(first, event), CudaResult::kInvalidHandle);
  }
}

}  // namespace
}  // namespace weir::device
