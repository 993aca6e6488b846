// The kernels of the facts.

#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

constexpr int kThreads = 256;

__global__ void EmptyKernel() {}

__device__ int64_t DeviceNs() {
  int64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void DelayKernel(int64_t ns) {
  const int64_t end = DeviceNs() + ns;
  while (DeviceNs() < end) __nanosleep(200);
}

__global__ void StoreKernel(volatile uint64_t* flag, uint64_t value) {
  *flag = value;
  __threadfence_system();
}

__global__ void CopyKernel(const uint4* from, uint4* to, size_t packs) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < packs;
       i += stride) {
    to[i] = from[i];
  }
}

__global__ void ReadKernel(const uint4* from, uint32_t* sums, size_t packs) {
  const size_t first = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x;
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  uint32_t sum = 0;
  for (size_t i = first; i < packs; i += stride) {
    const uint4 pack = from[i];
    sum += pack.x ^ pack.y ^ pack.z ^ pack.w;
  }
  sums[first] = sum;
}

__global__ void FillKernel(uint4* to, size_t packs) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x; i < packs;
       i += stride) {
    uint64_t bits = (i + 1) * 0x9E3779B97F4A7C15ull;
    bits ^= bits >> 29;
    bits *= 0xBF58476D1CE4E5B9ull;
    const uint32_t low = static_cast<uint32_t>(bits), high = static_cast<uint32_t>(bits >> 32);
    to[i] = make_uint4(low, high, low ^ (high << 7), high ^ (low >> 9));
  }
}

}  // namespace

void LaunchEmpty(cudaStream_t stream) { EmptyKernel<<<1, 32, 0, stream>>>(); }

void LaunchDelay(cudaStream_t stream, int64_t ns) { DelayKernel<<<1, 1, 0, stream>>>(ns); }

void LaunchStore(cudaStream_t stream, volatile uint64_t* flag, uint64_t value) {
  StoreKernel<<<1, 1, 0, stream>>>(flag, value);
}

void LaunchCopy(cudaStream_t stream, const void* from, void* to, size_t bytes, int blocks) {
  CopyKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                              static_cast<uint4*>(to), bytes / sizeof(uint4));
}

void LaunchRead(cudaStream_t stream, const void* from, uint32_t* sums, size_t bytes, int blocks) {
  ReadKernel<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from), sums,
                                              bytes / sizeof(uint4));
}

void LaunchFill(cudaStream_t stream, void* to, size_t bytes, int blocks) {
  FillKernel<<<blocks, kThreads, 0, stream>>>(static_cast<uint4*>(to), bytes / sizeof(uint4));
}

}  // namespace weir::gpu
