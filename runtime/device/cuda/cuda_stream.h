// A CudaStream names a stream of CUDA, or of CUDA's emulation, without CUDA's headers. Code that
// puts work into a stream asks the stream's recorder first, if the stream has one: the recorder
// learns all parameters of the work, so that a graph can replay it (cuda_chain.h).
//
//   if (!Records(stream, bytes that say all of the work)) put the work into the stream
//
// Thread rule: values; a recorder is used by the thread that owns the rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>

namespace weir::device {

// A KernelLaunch is one launch of a kernel with its parameters.
struct KernelLaunch {
  const void* kernel = nullptr;  // the function of the host that stands for the kernel
  unsigned blocks[3] = {1, 1, 1};
  unsigned threads[3] = {1, 1, 1};
  size_t shared_bytes = 0;
  // All parameters, each at its offset, and zeros between them.
  std::span<const char> parameters;
  std::span<const size_t> offsets;
  std::function<void()> emulated;  // the work of a launch on an emulated device; else empty
};

class LaunchRecorder {
 public:
  // kLaunch: the caller puts the work into the stream. kSkip: the caller does nothing.
  enum class Next : uint8_t { kLaunch, kSkip };

  virtual ~LaunchRecorder() = default;
  virtual Next BeforeKernel(const KernelLaunch& launch) = 0;
  // Is called after a kernel for which the answer was kLaunch.
  virtual void AfterKernel() = 0;
  // `key` says all that the work depends on: what is done, and the addresses.
  virtual Next BeforeOther(std::span<const char> key) = 0;
};

struct CudaStream {
  void* handle = nullptr;  // a cudaStream_t; an EmulatedStream* on an emulated device
  LaunchRecorder* recorder = nullptr;
};

// The parameters of a launch as bytes, each at a multiple of its alignment.
template <typename... Parameters>
class ParameterBytes {
 public:
  explicit ParameterBytes(const Parameters&... parameters) {
    static_assert((std::is_trivially_copyable_v<Parameters> && ...));
    size_t next = 0;
    (Keep(bytes_ + kOffsets[next++], parameters), ...);
  }
  std::span<const char> bytes() const { return {bytes_, sizeof(bytes_)}; }
  std::span<const size_t> offsets() const { return {kOffsets.data(), sizeof...(Parameters)}; }

 private:
  // Where each parameter begins, and where the last one ends.
  static constexpr std::array<size_t, sizeof...(Parameters) + 1> kOffsets = [] {
    std::array<size_t, sizeof...(Parameters) + 1> offsets{};
    size_t end = 0, next = 0;
    ((offsets[next] = (end + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters),
      end = offsets[next++] + sizeof(Parameters)),
     ...);
    offsets[next] = end;
    return offsets;
  }();
  // Bytes between the members of a parameter count for nothing and may be anything, so they become
  // zeros.
  template <typename Parameter>
  static void Keep(char* at, Parameter parameter) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
    if constexpr (!std::has_unique_object_representations_v<Parameter>)
      __builtin_clear_padding(&parameter);
#endif
#endif
    std::memcpy(at, &parameter, sizeof(parameter));
  }
  alignas(std::max_align_t) char bytes_[kOffsets.back() + 1] = {};
};

// Returns whether a recorder has taken work that is no kernel of ours, so that the caller must not
// put it into the stream. `key` says all that the work depends on. The type of `key` has no bytes
// between its members.
template <typename Key>
bool Records(CudaStream stream, const Key& key) {
  static_assert(std::has_unique_object_representations_v<Key>);
  if (stream.recorder == nullptr) return false;
  const std::span<const char> bytes(reinterpret_cast<const char*>(&key), sizeof(key));
  return stream.recorder->BeforeOther(bytes) == LaunchRecorder::Next::kSkip;
}

// A stream of an emulated device does its work late, in an order that the device draws.
class EmulatedStream {
 public:
  virtual ~EmulatedStream() = default;
  virtual void Put(std::function<void()> work) = 0;
  // Puts work that waits for other devices: the stream calls `attempt` until `attempt` returns
  // true, and does nothing else meanwhile. An attempt never waits. A stream that one thread shares
  // with other streams returns to these between attempts.
  virtual void PutAttempts(std::function<bool()> attempt) {
    Put([attempt = std::move(attempt)] {
      while (!attempt()) std::this_thread::yield();
    });
  }
};

}  // namespace weir::device
