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
#include "runtime/device/cuda/cuda_chain.h"
#include "runtime/device/cuda/emulated_cuda_api.h"
#include "runtime/device/device_conformance.h"
#include "runtime/device/memory_conformance.h"
#include "runtime/device/walled_memory.h"

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

int64_t* Inside(char* number) { return static_cast<int64_t*>(WalledMemory::Inside(number)); }

// Stands for the function of a kernel.
constexpr char kAddKernel = 0, kTwiceKernel = 0;

// Puts a kernel with these parameters into the stream, as Launch of ops/kernels/cuda does.
void LaunchKernel(CudaStream stream, const char* kernel, char* to, char* from, int64_t number) {
  const std::function<void()> work = [=] {
    *Inside(to) = (kernel == &kTwiceKernel ? 2 : 1) * *Inside(from) + number;
  };
  if (stream.recorder != nullptr) {
    const ParameterBytes<char*, char*, int64_t> parameters(to, from, number);
    const KernelLaunch launch{
        kernel, {1, 1, 1}, {1, 1, 1}, 0, parameters.bytes(), parameters.offsets(), work};
    if (stream.recorder->BeforeKernel(launch) == LaunchRecorder::Next::kSkip) return;
  }
  static_cast<EmulatedStream*>(stream.handle)->Put(work);
  if (stream.recorder != nullptr) stream.recorder->AfterKernel();
}

// Puts a copy there, as a call of a library whose parameters nobody can change later.
void CallLibrary(CudaStream stream, char* to, char* from) {
  const struct {
    char* to;
    char* from;
  } call{to, from};
  if (Records(stream, call)) return;
  static_cast<EmulatedStream*>(stream.handle)->Put([=] { *Inside(to) = *Inside(from); });
}

// A row of three kernels and a call of a library: number `to` becomes 2 * (number `from` + add)
// + 1.
class CudaChainTest : public CudaDeviceTest {
 protected:
  void MakeChain(int queue, DeviceQueue::Chains chains = DeviceQueue::Chains::kMust) {
    chain_ = device_->queue(QueueId(queue)).MakeChain(chains);
  }
  CudaChain& chain() { return static_cast<CudaChain&>(*chain_); }
  void PutRow(DeviceQueue& queue, int from, int to, int64_t add) {
    const CudaStream stream = static_cast<CudaQueue&>(queue).stream();
    LaunchKernel(stream, &kAddKernel, at(40), at(from), add);
    CallLibrary(stream, at(41), at(40));
    LaunchKernel(stream, &kTwiceKernel, at(42), at(41), 0);
    LaunchKernel(stream, &kAddKernel, at(to), at(42), 1);
  }
  void LaunchRow(int queue, int from, int to, int64_t add) {
    LaunchOn(queue, [&](DeviceQueue& of) {
      const absl::Status done = chain_->Run([&] {
        PutRow(of, from, to, add);
        return absl::OkStatus();
      });
      EXPECT_TRUE(done.ok()) << done;
    });
  }
  void TearDown() override { chain_.reset(); }

  std::unique_ptr<DeviceChain> chain_;
};

TEST_F(CudaChainTest, ARowWithOtherNumbersEachTimeIsAGraph) {
  for (const int depth : {1, 64}) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(seed);
      chain_.reset();
      Make(1, depth, seed);
      MakeChain(0);
      Set(0, 5);
      for (int i = 0; i < 20; ++i) {
        if (depth == 1) WorkUntilDone(0, i);
        LaunchRow(0, 0, 1 + i, i % 3);
      }
      WorkUntilDone(0, 20);
      for (int i = 0; i < 20; ++i) EXPECT_EQ(Get(1 + i), 2 * (5 + i % 3) + 1) << i;
      EXPECT_EQ(chain().num_graph_launches(), 19)
          << "all but the first, which is put there as it is";
      EXPECT_LE(chain().num_graphs(), 3) << "one for each number that most of the row depends on";
    }
  }
}

TEST_F(CudaChainTest, ANumberThatComesBackIsTakenAnew) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    chain_.reset();
    Make(1, 64, seed);
    MakeChain(0);
    Set(0, 5);
    const int64_t added[] = {0, 1, 1, 2, 1, 2, 2, 1};
    for (int i = 0; i < 8; ++i) {
      LaunchRow(0, 0, 1, added[i]);
      LaunchCopy(0, 1, 10 + i);
    }
    WorkUntilDone(0, 16);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(Get(10 + i), 2 * (5 + added[i]) + 1) << i;
    EXPECT_EQ(chain().num_graphs(), 1);
  }
}

TEST_F(CudaChainTest, OtherAddressesOfALibraryNeedAnotherGraph) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    chain_.reset();
    Make(1, 64, seed);
    MakeChain(0);
    for (int slot = 0; slot < 3; ++slot) Set(slot, 100 * slot);
    for (int i = 0; i < 12; ++i) {
      LaunchOn(0, [&](DeviceQueue& of) {
        EXPECT_TRUE(chain_
                        ->Run([&] {
                          const CudaStream stream = static_cast<CudaQueue&>(of).stream();
                          CallLibrary(stream, at(30), at(i % 3));
                          // Many kernels that stay, so that other parameters of the last one
                          // alone are no reason for another graph.
                          for (int k = 30; k < 34; ++k)
                            LaunchKernel(stream, &kAddKernel, at(k + 1), at(k), 0);
                          LaunchKernel(stream, &kAddKernel, at(10 + i), at(34), i);
                          return absl::OkStatus();
                        })
                        .ok());
      });
    }
    WorkUntilDone(0, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(Get(10 + i), 100 * (i % 3) + i);
    EXPECT_EQ(chain().num_graphs(), 3);
  }
}

TEST_F(CudaChainTest, AnotherQueueWorksWhileAGraphIsCapturedAndWaitsForIt) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    chain_.reset();
    Make(2, 64, seed);
    MakeChain(0);
    Set(0, 1);
    for (int64_t round = 1; round <= 6; ++round) {
      LaunchCopy(1, 0, 2);
      device_->Await(QueueId(0), {QueueId(1), 2 * round - 1});
      LaunchRow(0, 2, 3, round);
      LaunchCopy(0, 3, 4);
      device_->Await(QueueId(1), {QueueId(0), 2 * round});
      LaunchCopy(1, 4, 0);
    }
    WorkUntilDone(1, 12);
    int64_t expected = 1;
    for (int64_t round = 1; round <= 6; ++round) expected = 2 * (expected + round) + 1;
    EXPECT_EQ(Get(0), expected);
  }
}

TEST_F(CudaChainTest, AChainThatEndsLeavesNoGraphBeforeItsWorkIsDone) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Make(1, 64, seed);
    MakeChain(0);
    Set(0, 5);
    for (int i = 0; i < 4; ++i) LaunchRow(0, 0, 1 + i, i);
    chain_.reset();
    WorkUntilDone(0, 4);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(Get(1 + i), 2 * (5 + i) + 1);
  }
}

TEST_F(CudaChainTest, ARowThatNoGraphCanHoldIsAnErrorOrPutThereAsItIs) {
  Make(1, 64, 1);
  Set(0, 5);
  const auto put = [&] {
    PutRow(device_->queue(QueueId(0)), 0, 1, 7);
    // A capture does not allow this.
    return device_->memory().Allocate(64, DeviceMemory::Reach::kDevice).status();
  };
  MakeChain(0, DeviceQueue::Chains::kMust);
  EXPECT_TRUE(chain_->Run(put).ok()) << "the first row is no graph";
  const absl::Status refused = chain_->Run(put);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("W0965"));
  MakeChain(0, DeviceQueue::Chains::kMay);
  for (int i = 0; i < 3; ++i) {
    Set(1, 0);
    EXPECT_TRUE(chain_->Run(put).ok());
    ASSERT_TRUE(device_->queue(QueueId(0)).Finish().ok());
    EXPECT_EQ(Get(1), 25);
  }
  EXPECT_EQ(chain().num_graph_launches(), 0);
}

TEST_F(CudaChainTest, RowsThatNeedTooManyGraphsAreStillDone) {
  Make(1, 64, 1);
  MakeChain(0);
  Set(0, 0);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(chain_
                    ->Run([&] {
                      const CudaStream stream =
                          static_cast<CudaQueue&>(device_->queue(QueueId(0))).stream();
                      for (int k = 0; k < 2 + i % 20; ++k)
                        LaunchKernel(stream, &kAddKernel, at(0), at(0), 1);
                      return absl::OkStatus();
                    })
                    .ok());
  }
  ASSERT_TRUE(device_->queue(QueueId(0)).Finish().ok());
  EXPECT_EQ(Get(0), 10 * (20 * 2 + 190));
  EXPECT_EQ(chain().num_graphs(), CudaChain::kGraphsMax);
}

// Two streams, events and numbers of the emulated runtime.
class EmulatedCaptureTest : public ::testing::Test {
 protected:
  explicit EmulatedCaptureTest(uint64_t seed = 1) : api_(seed) {
    for (CudaStream* stream : {&first_, &second_})
      api_.CreateStream(CudaApi::Priority::kNormal, stream);
    for (CudaEvent* event : {&fork_, &join_, &end_}) api_.CreateEvent(event);
  }
  void Put(CudaStream stream, std::function<void()> work) {
    static_cast<EmulatedStream*>(stream.handle)->Put(std::move(work));
  }

  EmulatedCudaApi api_;
  CudaStream first_, second_;
  CudaEvent fork_, join_, end_;
};

TEST_F(EmulatedCaptureTest, ACaptureForbidsWhatCudaForbids) {
  char* memory = nullptr;
  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  EXPECT_EQ(api_.BeginCapture(first_), CudaResult::kStreamCaptureUnsupported);
  EXPECT_EQ(api_.Malloc(&memory, 64), CudaResult::kStreamCaptureUnsupported);
  CudaGraph graph;
  EXPECT_EQ(api_.EndCapture(first_, &graph), CudaResult::kStreamCaptureInvalidated);
  EXPECT_EQ(api_.Malloc(&memory, 64), CudaResult::kSuccess) << "the capture has ended";

  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  EXPECT_EQ(api_.SynchronizeStream(first_), CudaResult::kStreamCaptureUnsupported);
  EXPECT_EQ(api_.EndCapture(first_, &graph), CudaResult::kStreamCaptureInvalidated);

  ASSERT_EQ(api_.RecordEvent(end_, second_), CudaResult::kSuccess);
  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  EXPECT_EQ(api_.WaitEvent(first_, end_), CudaResult::kStreamCaptureIsolation);
  EXPECT_EQ(api_.EndCapture(first_, &graph), CudaResult::kStreamCaptureInvalidated);

  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  api_.RecordEvent(fork_, first_);
  EXPECT_EQ(api_.QueryEvent(fork_), CudaResult::kStreamCaptureUnsupported);
  EXPECT_EQ(api_.WaitEvent(second_, fork_), CudaResult::kSuccess);
  Put(second_, [] {});
  EXPECT_EQ(api_.EndCapture(second_, &graph), CudaResult::kStreamCaptureUnsupported);
  EXPECT_EQ(api_.EndCapture(first_, &graph), CudaResult::kStreamCaptureUnjoined);
  EXPECT_EQ(api_.EndCapture(first_, &graph), CudaResult::kStreamCaptureUnsupported);
  EXPECT_EQ(api_.WaitEvent(second_, fork_), CudaResult::kStreamCaptureIsolation);
}

TEST_F(EmulatedCaptureTest, WhatIsCapturedIsDoneByLaunchesAlone) {
  int64_t count = 0;
  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  Put(first_, [&] { ++count; });
  CudaGraph graph;
  CudaGraphExec exec;
  ASSERT_EQ(api_.EndCapture(first_, &graph), CudaResult::kSuccess);
  ASSERT_EQ(api_.Instantiate(graph, &exec), CudaResult::kSuccess);
  api_.SynchronizeStream(first_);
  EXPECT_EQ(count, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(api_.LaunchGraph(exec, first_), CudaResult::kSuccess);
  api_.SynchronizeStream(first_);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(api_.DestroyExec(exec), CudaResult::kSuccess);
  EXPECT_EQ(api_.LaunchGraph(exec, first_), CudaResult::kInvalidHandle);
  EXPECT_EQ(api_.DestroyGraph(graph), CudaResult::kSuccess);
  EXPECT_EQ(api_.Instantiate(graph, &exec), CudaResult::kInvalidHandle);
}

TEST(EmulatedGraphTest, BranchesOfAGraphComeInAnyOrderAndItsEdgesHold) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    EmulatedCudaApi api(seed);
    CudaStream first, second;
    api.CreateStream(CudaApi::Priority::kNormal, &first);
    api.CreateStream(CudaApi::Priority::kNormal, &second);
    CudaEvent fork, join;
    api.CreateEvent(&fork);
    api.CreateEvent(&join);
    std::vector<int> order;
    const auto put = [&](CudaStream stream, int number) {
      static_cast<EmulatedStream*>(stream.handle)->Put([&order, number] {
        order.push_back(number);
      });
    };
    ASSERT_EQ(api.BeginCapture(first), CudaResult::kSuccess);
    put(first, 0);
    api.RecordEvent(fork, first);
    api.WaitEvent(second, fork);
    put(second, 1);
    put(first, 2);
    api.RecordEvent(join, second);
    api.WaitEvent(first, join);
    put(first, 3);
    CudaGraph graph;
    CudaGraphExec exec;
    ASSERT_EQ(api.EndCapture(first, &graph), CudaResult::kSuccess);
    ASSERT_EQ(api.Instantiate(graph, &exec), CudaResult::kSuccess);
    ASSERT_EQ(api.LaunchGraph(exec, second), CudaResult::kSuccess);
    api.SynchronizeStream(second);
    ASSERT_EQ(order.size(), 4u);
    EXPECT_EQ(order.front(), 0);
    EXPECT_EQ(order.back(), 3);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 2u);
}

TEST(EmulatedGraphTest, LaunchesOfOneGraphFollowEachOtherInAllStreams) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    EmulatedCudaApi api(seed);
    CudaStream streams[2];
    for (CudaStream& stream : streams) api.CreateStream(CudaApi::Priority::kNormal, &stream);
    int64_t a = 0, b = 0, most = 0;
    ASSERT_EQ(api.BeginCapture(streams[0]), CudaResult::kSuccess);
    const auto put = [&](std::function<void()> work) {
      static_cast<EmulatedStream*>(streams[0].handle)->Put(std::move(work));
    };
    put([&] { ++a; });
    put([&] { most = std::max(most, a - b); });
    put([&] { ++b; });
    CudaGraph graph;
    CudaGraphExec exec;
    CudaEvent end;
    api.CreateEvent(&end);
    ASSERT_EQ(api.EndCapture(streams[0], &graph), CudaResult::kSuccess);
    ASSERT_EQ(api.Instantiate(graph, &exec), CudaResult::kSuccess);
    for (int i = 0; i < 6; ++i) api.LaunchGraph(exec, streams[i % 2]);
    api.RecordEvent(end, streams[1]);
    while (api.QueryEvent(end) == CudaResult::kNotReady) continue;
    api.SynchronizeStream(streams[0]);
    EXPECT_EQ(b, 6);
    EXPECT_EQ(most, 1) << "two launches were under way";
  }
}

TEST_F(EmulatedCaptureTest, AGraphThatIsDestroyedWhileItRunsLosesItsWork) {
  int64_t count = 0;
  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  Put(first_, [&] { ++count; });
  CudaGraph graph;
  CudaGraphExec exec;
  ASSERT_EQ(api_.EndCapture(first_, &graph), CudaResult::kSuccess);
  ASSERT_EQ(api_.Instantiate(graph, &exec), CudaResult::kSuccess);
  api_.LaunchGraph(exec, first_);
  EXPECT_EQ(api_.DestroyExec(exec), CudaResult::kInvalidValue);
  api_.SynchronizeStream(first_);
  EXPECT_EQ(count, 0);
}

TEST_F(EmulatedCaptureTest, OtherParametersHoldForLaterLaunchesOfAGraphThatIsStillThere) {
  int64_t sum = 0;
  ASSERT_EQ(api_.BeginCapture(first_), CudaResult::kSuccess);
  Put(first_, [&] { sum += 1; });
  CudaNode node;
  ASSERT_EQ(api_.LastCaptured(first_, &node), CudaResult::kSuccess);
  CudaGraph graph;
  CudaGraphExec exec;
  ASSERT_EQ(api_.EndCapture(first_, &graph), CudaResult::kSuccess);
  ASSERT_EQ(api_.Instantiate(graph, &exec), CudaResult::kSuccess);
  api_.LaunchGraph(exec, first_);
  KernelLaunch other;
  other.emulated = [&] { sum += 10; };
  EXPECT_EQ(api_.SetKernel(exec, node, other), CudaResult::kSuccess);
  api_.LaunchGraph(exec, first_);
  api_.SynchronizeStream(first_);
  EXPECT_EQ(sum, 11);
  api_.DestroyGraph(graph);
  EXPECT_EQ(api_.SetKernel(exec, node, other), CudaResult::kInvalidHandle);
}

}  // namespace
}  // namespace weir::device
