// The emulation of CUDA kernels on the host: what the sources of ops/kernels/cuda see instead of
// CUDA's headers when the host's compiler compiles them (WEIR_CUDA_EMULATED). Include launch.cuh,
// not this file.
//
// A launch runs the blocks of its grid one after another on the host thread that runs the stream's
// work. The threads of a block are fibers: a thread runs until it waits at a barrier or at an
// operation of its warp, and then another one runs. ThreadOrder (thread_order.h) says in which
// order blocks and threads run. A kernel whose result depends on the order has a race: two orders
// that are opposite to each other (kAscending, kDescending) run every two threads between two
// barriers both ways round, so a race that changes a result gives different bits.
//
// The emulation stops the program, with a message that names the launch, the block and the thread,
// on what CUDA leaves undefined:
//   - a barrier that some threads of the block do not reach, or reach at another line,
//   - an operation of a warp with a mask that is not full, or with lanes that do not come,
//   - a write beyond the shared memory that the launch asked for (found when the thread waits or
//     ends, or at once under AddressSanitizer).
// Shared memory holds NaNs (every byte 0xff) when a block starts.
//
// The emulation does not show writes to other threads in another order than they were made, as the
// memory of a GPU may.
//
// Thread rule: any number of host threads run launches at the same time; one launch at a time in
// each.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/device/cuda/cuda_stream.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

// Declares `name` as the block's shared memory, aligned to 16 bytes: as many bytes as the launch
// asked for. At most once in a kernel.
#define WEIR_SHARED(type, name) \
  type* const name =            \
      reinterpret_cast<type*>(::weir::kernels::WEIR_CUDA_SPACE::emulation::SharedMemory())

namespace weir::kernels::WEIR_CUDA_SPACE {

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  constexpr dim3(unsigned along_x = 1, unsigned along_y = 1, unsigned along_z = 1)  // NOLINT
      : x(along_x), y(along_y), z(along_z) {}
  unsigned x, y, z;
};

// The vectors of CUDA that one access loads or stores.
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// These are of the thread that runs now.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;

namespace emulation {

using Place = std::source_location;

void* SharedMemory();
void BlockBarrier(Place place);

// Waits until all lanes of the warp have come to `place` with their values, and returns the 32
// values, by lane. The array stays as it is until the lane comes to its next operation.
const uint64_t* ExchangeInWarp(unsigned mask, uint64_t value, const char* operation, Place place);
unsigned Lane();
[[noreturn]] void BadWidth(int width, const char* operation, Place place);

struct LaunchShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
  Place place;  // of the call of Launch
};

// Runs thread(closure) for each thread of each block.
void RunLaunch(const LaunchShape& shape, void (*thread)(const void*), const void* closure);

// Stops the program unless a GPU could run a launch of this shape.
void CheckShape(const LaunchShape& shape);

template <typename T>
concept WarpValue = std::is_arithmetic_v<T>;

template <WarpValue T>
uint64_t ToBits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <WarpValue T>
T FromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `source_lane(position, width)` says which lane of a part of `width` lanes the lane at `position`
// of the part reads; a lane outside the part stands for the reader's own value.
template <WarpValue T, typename SourceLane>
T Shuffle(unsigned mask, T value, int width, const char* operation, Place place,
          SourceLane source_lane) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) BadWidth(width, operation, place);
  const int lane = static_cast<int>(Lane());
  const int position = lane % width;
  const int source = source_lane(position, width);
  const uint64_t* values = ExchangeInWarp(mask, ToBits(value), operation, place);
  const bool inside = source >= 0 && source < width;
  return FromBits<T>(values[inside ? lane - position + source : lane]);
}

}  // namespace emulation

inline void __syncthreads(emulation::Place place = emulation::Place::current()) {
  emulation::BlockBarrier(place);
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       emulation::Place place = emulation::Place::current()) {
  emulation::ExchangeInWarp(mask, 0, "__syncwarp", place);
}

template <emulation::WarpValue T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              emulation::Place place = emulation::Place::current()) {
  return emulation::Shuffle(mask, value, width, "__shfl_sync", place,
                            [source](int, int part) { return source & (part - 1); });
}

template <emulation::WarpValue T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  emulation::Place place = emulation::Place::current()) {
  return emulation::Shuffle(mask, value, width, "__shfl_xor_sync", place,
                            [lane_mask](int position, int) { return position ^ lane_mask; });
}

template <emulation::WarpValue T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   emulation::Place place = emulation::Place::current()) {
  return emulation::Shuffle(
      mask, value, width, "__shfl_down_sync", place,
      [distance](int position, int) { return position + static_cast<int>(distance); });
}

template <emulation::WarpValue T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 emulation::Place place = emulation::Place::current()) {
  return emulation::Shuffle(
      mask, value, width, "__shfl_up_sync", place,
      [distance](int position, int) { return position - static_cast<int>(distance); });
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              emulation::Place place = emulation::Place::current()) {
  const uint64_t* values = emulation::ExchangeInWarp(mask, predicate != 0, "__ballot_sync", place);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>(values[lane]) << lane;
  return ballot;
}

// Only one thread of a launch runs at a time, so an atomic operation is a plain one. Floats have
// none: their sums would depend on the order of the threads.
template <typename T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned>);
  const T before = *at;
  *at = before + value;
  return before;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}
inline uint64_t __umul64hi(uint64_t x, uint64_t y) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(x) * y) >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }

inline unsigned __float_as_uint(float x) { return static_cast<unsigned>(emulation::ToBits(x)); }
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __uint_as_float(unsigned x) { return emulation::FromBits<float>(x); }
inline float __int_as_float(int x) { return __uint_as_float(static_cast<unsigned>(x)); }

template <typename T>
T __ldg(const T* at) {
  return *at;
}

#define WEIR_MIN_MAX(type)                                  \
  inline type min(type x, type y) { return y < x ? y : x; } \
  inline type max(type x, type y) { return x < y ? y : x; }
WEIR_MIN_MAX(int)
WEIR_MIN_MAX(unsigned)
WEIR_MIN_MAX(int64_t)
WEIR_MIN_MAX(uint64_t)
#undef WEIR_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }

// A stream, and the line that launches into it: Launch learns its caller by the conversion.
struct LaunchStream {
  LaunchStream(device::CudaStream to,  // NOLINT: implicit
               emulation::Place caller = emulation::Place::current())
      : stream(to), place(caller) {}
  device::CudaStream stream;
  emulation::Place place;
};

// Puts the launch into the stream behind `stream.handle`, which runs it later.
template <typename... Parameters, typename... Arguments>
void Launch(LaunchStream stream, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
            size_t shared_bytes, Arguments... arguments) {
  struct Closure {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  };
  const emulation::LaunchShape shape{blocks, threads, shared_bytes, stream.place};
  emulation::CheckShape(shape);
  std::function<void()> work =
      [shape, closure = Closure{kernel,
                                std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)}] {
        emulation::RunLaunch(
            shape,
            [](const void* at) {
              const auto* launch = static_cast<const Closure*>(at);
              std::apply(launch->kernel, launch->parameters);
            },
            &closure);
      };
  device::LaunchRecorder* const recorder = stream.stream.recorder;
  if (recorder != nullptr) {
    const device::ParameterBytes<Parameters...> parameters(static_cast<Parameters>(arguments)...);
    const device::KernelLaunch launch{reinterpret_cast<const void*>(kernel),
                                      {blocks.x, blocks.y, blocks.z},
                                      {threads.x, threads.y, threads.z},
                                      shared_bytes,
                                      parameters.bytes(),
                                      parameters.offsets(),
                                      work};
    if (recorder->BeforeKernel(launch) == device::LaunchRecorder::Next::kSkip) return;
  }
  static_cast<device::EmulatedStream*>(stream.stream.handle)->Put(std::move(work));
  if (recorder != nullptr) recorder->AfterKernel();
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
