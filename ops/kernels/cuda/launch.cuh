// Every .cu of this folder includes this header: it launches kernels, and has shared memory and
// numbers. The
// same source is compiled by nvcc for a GPU and by the host's compiler for the emulation
// (emulation/emulation.h), so a kernel uses only what both have:
//
//   threadIdx, blockIdx, blockDim, gridDim (all three axes), __global__, __device__,
//   __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync,
//   atomicAdd on int and unsigned, the functions of <cmath> for float (expf, erff, tanhf, ...),
//   rsqrtf, WEIR_SHARED for shared memory (never __shared__), and the types and functions below.
//
// Sums must not depend on the order in which threads come: no atomics on floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/device/cuda/cuda_stream.h"

#ifdef WEIR_CUDA_EMULATED
#include "ops/kernels/cuda/emulation/emulation.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

// Declares `name` as the block's shared memory, aligned to 16 bytes: as many bytes as the launch
// asked for. At most once in a kernel.
#define WEIR_SHARED(type, name)                       \
  extern __shared__ __align__(16) char weir_shared[]; \
  type* const name = reinterpret_cast<type*>(weir_shared)
#endif

namespace weir::kernels::WEIR_CUDA_SPACE {

constexpr int kWarp = 32;

#ifndef WEIR_CUDA_EMULATED
// Puts the kernel into the stream. Launch errors are the device's (runtime/device/cuda).
template <typename... Parameters, typename... Arguments>
void Launch(device::CudaStream stream, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
            size_t shared_bytes, Arguments... arguments) {
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  if (stream.recorder != nullptr) {
    const device::ParameterBytes<Parameters...> parameters(static_cast<Parameters>(arguments)...);
    const device::KernelLaunch launch{reinterpret_cast<const void*>(kernel),
                                      {blocks.x, blocks.y, blocks.z},
                                      {threads.x, threads.y, threads.z},
                                      shared_bytes,
                                      parameters.bytes(),
                                      parameters.offsets(),
                                      {}};
    if (stream.recorder->BeforeKernel(launch) == device::LaunchRecorder::Next::kSkip) return;
  }
  kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(stream.handle)>>>(
      static_cast<Parameters>(arguments)...);
  if (stream.recorder != nullptr) stream.recorder->AfterKernel();
}
#endif

// A bf16 number is the upper half of an f32; rounding is to the nearest, ties to even.
struct alignas(2) Bf16 {
  uint16_t bits;
};

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(int32_t x) { return static_cast<float>(x); }
__device__ inline float ToFloat(bool x) { return x ? 1.0f : 0.0f; }
__device__ inline float ToFloat(Bf16 x) {
  union {
    uint32_t bits;
    float value;
  } number{static_cast<uint32_t>(x.bits) << 16};
  return number.value;
}

__device__ inline void Store(float* to, float x) { *to = x; }
__device__ inline void Store(Bf16* to, float x) {
#ifdef WEIR_CUDA_EMULATED
  union {
    float value;
    uint32_t bits;
  } number{x};
  const bool is_nan = (number.bits & 0x7fffffffu) > 0x7f800000u;
  to->bits =
      is_nan ? static_cast<uint16_t>((number.bits >> 16) | 0x40u)
             : static_cast<uint16_t>((number.bits + 0x7fffu + ((number.bits >> 16) & 1u)) >> 16);
#else
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#endif
}

// N elements that are loaded and stored by one access of N * sizeof(T) bytes, to which the address
// is aligned.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// The elements of one access of 16 bytes.
template <typename T>
constexpr int kPackSize = 16 / sizeof(T);

// Stores the pack in the device's memory. `to` is aligned to the pack. A pack of 16 bytes goes out
// in one access: the compiler splits an assignment of numbers that it holds in registers into an
// access for each number, which makes a kernel up to four times as slow.
template <typename T, int N>
__device__ inline void StoreWhole(T* to, const Pack<T, N>& pack) {
#ifndef WEIR_CUDA_EMULATED
  if constexpr (sizeof(pack) == sizeof(uint4)) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    __stwb(reinterpret_cast<uint4*>(to), words);
    return;
  }
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Sums over the 32 threads of a warp; every thread gets the sum. All of them must call.
__device__ inline float WarpSum(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
