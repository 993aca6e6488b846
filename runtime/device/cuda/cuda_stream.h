// A CudaStream names a stream of CUDA, or of CUDA's emulation, without CUDA's headers. Thread rule:
// value.
#pragma once

#include <functional>
#include <thread>
#include <utility>

namespace weir::device {

struct CudaStream {
  void* handle = nullptr;  // a cudaStream_t; an EmulatedStream* on an emulated device
};

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
