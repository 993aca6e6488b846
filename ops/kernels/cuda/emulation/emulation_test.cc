#include "ops/kernels/cuda/emulation/emulation.h"

#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cuda/emulation/thread_order.h"
#include "ops/kernels/cuda/launch.cuh"

namespace weir::kernels::cuda_emulated {
namespace {

constexpr int kNumOrders = 6;  // the two that are opposite to each other, and four that are drawn

// Does all work at once.
class Stream final : public device::EmulatedStream {
 public:
  void Put(std::function<void()> work) override { work(); }
  device::CudaStream operator*() { return {this}; }
};

__global__ void WriteIndices(int* y) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  y[block * blockDim.x * blockDim.y * blockDim.z + thread] +=
      static_cast<int>(thread + 1000 * block);
}

TEST(EmulationTest, EveryThreadOfEveryBlockRunsOnce) {
  for (int order = 0; order < kNumOrders; ++order) {
    SetThreadOrder(order);
    std::vector<int> y(2 * 3 * 5 * 7 * 2 * 3);
    Stream stream;
    Launch(*stream, &WriteIndices, dim3(2, 3, 5), dim3(7, 2, 3), 0, y.data());
    for (int i = 0; i < static_cast<int>(y.size()); ++i) EXPECT_EQ(y[i], i % 42 + i / 42 * 1000);
  }
}

__global__ void Add(float a, int64_t b, float* y) { *y = a + static_cast<float>(b); }

TEST(EmulationTest, ArgumentsAreConvertedToTheParametersOfTheKernel) {
  float y = 0;
  Stream stream;
  Launch(*stream, &Add, dim3(1), dim3(1), 0, 2, 3u, &y);
  EXPECT_EQ(y, 5);
}

__global__ void RecordOrder(int* next, int* y) { y[(*next)++] = static_cast<int>(threadIdx.x); }

TEST(EmulationTest, OrdersOppositeToEachOtherRunTheThreadsBothWaysRound) {
  const auto run = [](uint64_t order) {
    SetThreadOrder(order);
    int next = 0;
    std::vector<int> y(100);
    Stream stream;
    Launch(*stream, &RecordOrder, dim3(1), dim3(100), 0, &next, y.data());
    return y;
  };
  std::vector<int> ascending(100);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(run(ThreadOrder::kAscending), ascending);
  EXPECT_EQ(run(ThreadOrder::kDescending), std::vector<int>(ascending.rbegin(), ascending.rend()));
  const std::vector<int> drawn = run(ThreadOrder::kFirstDrawn);
  EXPECT_NE(drawn, ascending);
  EXPECT_EQ(run(ThreadOrder::kFirstDrawn), drawn);  // the seed alone decides
  EXPECT_NE(run(ThreadOrder::kFirstDrawn + 1), drawn);
}

// Sums 256 values per block by halves in shared memory. `barrier` says whether threads wait for
// each other between the halves.
template <bool barrier>
__global__ void SumOfBlock(const float* x, float* y) {
  WEIR_SHARED(float, sums);
  sums[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    if constexpr (barrier) __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = sums[0];
}

template <bool barrier>
std::vector<float> SumsOfBlocks(uint64_t order) {
  SetThreadOrder(order);
  std::vector<float> x(3 * 256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<float> y(3);
  Stream stream;
  Launch(*stream, &SumOfBlock<barrier>, dim3(3), dim3(256), 256 * sizeof(float), x.data(),
         y.data());
  return y;
}

TEST(EmulationTest, ACorrectKernelGivesTheSameBitsInEveryOrder) {
  const std::vector<float> sums = SumsOfBlocks<true>(ThreadOrder::kAscending);
  double expected = 0;
  for (int i = 0; i < 256; ++i) expected += std::sin(static_cast<double>(i));
  EXPECT_NEAR(sums[0], expected, 1e-4);
  for (int order = 1; order < kNumOrders; ++order) EXPECT_EQ(SumsOfBlocks<true>(order), sums);
}

TEST(EmulationTest, AForgottenBarrierShowsInOppositeOrders) {
  EXPECT_NE(SumsOfBlocks<false>(ThreadOrder::kAscending),
            SumsOfBlocks<false>(ThreadOrder::kDescending));
}

__global__ void WarpOperations(float* sums, int* shuffled, unsigned* ballots) {
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = WarpSum(static_cast<float>(thread));
  int* to = shuffled + 5 * thread;
  to[0] = __shfl_sync(0xffffffffu, thread, 3);
  to[1] = __shfl_xor_sync(0xffffffffu, thread, 5);
  to[2] = __shfl_down_sync(0xffffffffu, thread, 2);
  to[3] = __shfl_down_sync(0xffffffffu, thread, 2, 8);
  to[4] = __shfl_up_sync(0xffffffffu, thread, 1, 8);
  __syncwarp();
  ballots[thread] = __ballot_sync(0xffffffffu, thread % 3 == 0);
}

TEST(EmulationTest, OperationsOfAWarpMoveValuesBetweenItsLanes) {
  for (int order = 0; order < kNumOrders; ++order) {
    SetThreadOrder(order);
    std::vector<float> sums(96);
    std::vector<int> shuffled(5 * 96);
    std::vector<unsigned> ballots(96);
    Stream stream;
    Launch(*stream, &WarpOperations, dim3(1), dim3(96), 0, sums.data(), shuffled.data(),
           ballots.data());
    for (int thread = 0; thread < 96; ++thread) {
      const int first = thread / 32 * 32;
      const int lane = thread % 32;
      EXPECT_EQ(sums[thread], static_cast<float>(32 * first + 496));
      EXPECT_EQ(shuffled[5 * thread], first + 3);
      EXPECT_EQ(shuffled[5 * thread + 1], first + (lane ^ 5));
      EXPECT_EQ(shuffled[5 * thread + 2], lane + 2 < 32 ? thread + 2 : thread);
      EXPECT_EQ(shuffled[5 * thread + 3], lane % 8 + 2 < 8 ? thread + 2 : thread);
      EXPECT_EQ(shuffled[5 * thread + 4], lane % 8 >= 1 ? thread - 1 : thread);
      unsigned ballot = 0;
      for (int i = 0; i < 32; ++i) ballot |= ((first + i) % 3 == 0 ? 1u : 0u) << i;
      EXPECT_EQ(ballots[thread], ballot);
    }
  }
}

__global__ void Count(int* counter, unsigned* places) {
  if (atomicAdd(counter, 2) == 4) atomicAdd(places, 1);
}

TEST(EmulationTest, AtomicAddReturnsTheValueBefore) {
  int counter = 0;
  unsigned places = 0;
  Stream stream;
  Launch(*stream, &Count, dim3(4), dim3(16), 0, &counter, &places);
  EXPECT_EQ(counter, 128);
  EXPECT_EQ(places, 1u);
}

TEST(EmulationTest, HostThreadsLaunchBesideEachOther) {
  SetThreadOrder(ThreadOrder::kAscending);
  const std::vector<float> sums = SumsOfBlocks<true>(ThreadOrder::kAscending);
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (auto& to : found) {
    threads.emplace_back([&to] {
      for (int i = 0; i < 20; ++i) to = SumsOfBlocks<true>(ThreadOrder::kAscending);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : found) EXPECT_EQ(of_thread, sums);
}

__global__ void ReadUnwritten(float* y) {
  WEIR_SHARED(float, values);
  if (threadIdx.x != 7) values[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x];
}

TEST(EmulationTest, UnwrittenSharedMemoryIsNaNInEveryBlock) {
  std::vector<float> y(32);
  Stream stream;
  Launch(*stream, &ReadUnwritten, dim3(3), dim3(32), 32 * sizeof(float), y.data());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(y[i]), i == 7);
}

class EmulationDeathTest : public testing::Test {
 protected:
  EmulationDeathTest() { SetThreadOrder(ThreadOrder::kAscending); }
  Stream stream_;
};

__global__ void LeaveBeforeBarrier() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}

TEST_F(EmulationDeathTest, ABarrierThatAThreadDoesNotReachIsNamed) {
  EXPECT_DEATH(Launch(*stream_, &LeaveBeforeBarrier, dim3(1), dim3(32), 0),
               "divergent barrier in block \\(0, 0, 0\\): thread \\(0, 0, 0\\) waits in "
               "__syncthreads at .*emulation_test.cc:.*LeaveBeforeBarrier.*, to which thread "
               "\\(5, 0, 0\\) never comes: it has ended");
}

__global__ void TwoBarriers() {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(EmulationDeathTest, DifferentBarriersAreNotOne) {
  EXPECT_DEATH(Launch(*stream_, &TwoBarriers, dim3(1), dim3(32), 0),
               "thread \\(5, 0, 0\\) of block \\(0, 0, 0\\): divergent barrier: the thread waits "
               "in .*, and thread \\(0, 0, 0\\) at ");
}

__global__ void WriteBeyond(int at) {
  WEIR_SHARED(char, bytes);
  if (threadIdx.x == 3) bytes[at] = 0;
  __syncthreads();
}

TEST_F(EmulationDeathTest, AWriteBeyondSharedMemoryIsNamed) {
  Launch(*stream_, &WriteBeyond, dim3(1), dim3(32), 40, 39);
  const char* const named =
      "thread \\(3, 0, 0\\) of block \\(0, 0, 0\\): write beyond the shared memory: the launch "
      "asked for 40 bytes|AddressSanitizer: use-after-poison";
  EXPECT_DEATH(Launch(*stream_, &WriteBeyond, dim3(1), dim3(32), 40, 40), named);
  EXPECT_DEATH(Launch(*stream_, &WriteBeyond, dim3(1), dim3(32), 40, -1), named);
  EXPECT_DEATH(Launch(*stream_, &WriteBeyond, dim3(1), dim3(32), 40, 40 + 900),
               "write beyond the shared memory|AddressSanitizer: use-after-poison");
}

__global__ void ShuffleWithoutLane(float* y) {
  if (threadIdx.x == 40) return;
  y[threadIdx.x] = WarpSum(1);
}

TEST_F(EmulationDeathTest, AnExitedLaneIsMissedByItsWarp) {
  std::vector<float> y(64);
  EXPECT_DEATH(Launch(*stream_, &ShuffleWithoutLane, dim3(1), dim3(64), 0, y.data()),
               "divergent warp in block \\(0, 0, 0\\): thread \\(32, 0, 0\\) waits in "
               "__shfl_xor_sync at .*, to which thread \\(40, 0, 0\\) never comes: it has ended");
}

__global__ void ShuffleInHalf(unsigned mask) {
  if (threadIdx.x < 16) __shfl_xor_sync(mask, 1.0f, 1);
}

TEST_F(EmulationDeathTest, APartOfAWarpIsRefused) {
  EXPECT_DEATH(Launch(*stream_, &ShuffleInHalf, dim3(1), dim3(32), 0, 0xffffu), "has mask 0xffff");
  EXPECT_DEATH(Launch(*stream_, &ShuffleInHalf, dim3(1), dim3(40), 0, 0xffffffffu),
               "divergent warp");
  EXPECT_DEATH(Launch(*stream_, &ShuffleInHalf, dim3(1), dim3(20), 0, 0xffffffffu),
               "the warp has only 20 lanes");
}

__global__ void TwoOperations() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __ballot_sync(0xffffffffu, 1);
  }
}

TEST_F(EmulationDeathTest, LanesAtDifferentOperationsAreNamed) {
  EXPECT_DEATH(Launch(*stream_, &TwoOperations, dim3(1), dim3(32), 0),
               "divergent warp: the thread comes to __ballot_sync at .*, and other lanes wait at "
               "__syncwarp at ");
}

__global__ void Nothing() {}

TEST_F(EmulationDeathTest, ALaunchThatNoGpuCouldRunIsRefused) {
  EXPECT_DEATH(Launch(*stream_, &Nothing, dim3(0), dim3(32), 0),
               "a grid of \\(0, 1, 1\\) blocks(.|\n)*launch at .*emulation_test.cc");
  EXPECT_DEATH(Launch(*stream_, &Nothing, dim3(1, 65536), dim3(32), 0), "a grid of");
  EXPECT_DEATH(Launch(*stream_, &Nothing, dim3(1), dim3(1025), 0), "1 to 1024 threads");
  EXPECT_DEATH(Launch(*stream_, &Nothing, dim3(1), dim3(32), 300000), "300000 bytes of shared");
}

}  // namespace
}  // namespace weir::kernels::cuda_emulated
