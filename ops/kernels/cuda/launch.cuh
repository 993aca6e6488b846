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
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

#ifdef WEIR_CUDA_EMULATED
#include "ops/kernels/cuda/emulation/emulation.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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

// Elements of bf16 and f16, as runtime/base/dtype.h has them; rounding is to the nearest, ties to
// even.
struct alignas(2) Bf16 {
  uint16_t bits;
};
struct alignas(2) F16 {
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
__device__ inline float ToFloat(F16 x) {
#ifdef WEIR_CUDA_EMULATED
  return ::weir::ToFloat(Float16{x.bits});
#else
  return __half2float(__ushort_as_half(x.bits));
#endif
}

__device__ inline void Store(float* to, float x) { *to = x; }
__device__ inline void Store(Bf16* to, float x) {
#ifdef WEIR_CUDA_EMULATED
  to->bits = ToBFloat16(x).bits;
#else
  to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#endif
}
__device__ inline void Store(F16* to, float x) {
#ifdef WEIR_CUDA_EMULATED
  to->bits = ToFloat16(x).bits;
#else
  to->bits = __half_as_ushort(__float2half_rn(x));
#endif
}

// Calls f with a null pointer to the type that stores elements of `dtype`, which is real.
template <typename F>
void WithReal(DType dtype, F&& f) {
  if (dtype == DType::kBF16) {
    f(static_cast<Bf16*>(nullptr));
  } else if (dtype == DType::kF16) {
    f(static_cast<F16*>(nullptr));
  } else {
    f(static_cast<float*>(nullptr));
  }
}

// Calls f with a null pointer to the type that stores elements of `dtype`.
template <typename F>
void WithStored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI32: return f(static_cast<int32_t*>(nullptr));
    case DType::kBool: return f(static_cast<uint8_t*>(nullptr));
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: break;
  }
  WithReal(dtype, f);
}

// Returns element i of `data`, whose type is real. The half types share a load: with a branch for
// each type, unrolled loops take minutes and gigabytes to compile.
__device__ inline float RealAt(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  const float of_bf16 = ToFloat(Bf16{bits}), of_f16 = ToFloat(F16{bits});
  return dtype == DType::kBF16 ? of_bf16 : of_f16;
}
// Sets element i of `data`, whose type is real, to `value`, rounded.
__device__ inline void StoreAt(DType dtype, void* data, int64_t i, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[i] = value;
    return;
  }
  Bf16 bf16;
  F16 f16;
  Store(&bf16, value);
  Store(&f16, value);
  static_cast<uint16_t*>(data)[i] = dtype == DType::kBF16 ? bf16.bits : f16.bits;
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
constexpr int PackSizeOf(DType dtype) { return static_cast<int>(16 / SizeOf(dtype)); }

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
