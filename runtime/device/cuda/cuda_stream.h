// A CudaStream names a stream of CUDA, or of CUDA's emulation, without CUDA's headers. Thread rule:
// value.
#pragma once

#include <functional>

namespace weir::device {

struct CudaStream {
  void* handle = nullptr;  // a cudaStream_t; an EmulatedStream* on an emulated device
};

// A stream of an emulated device does its work late, in an order that the device draws.
class EmulatedStream {
 public:
  virtual ~EmulatedStream() = default;
  virtual void Put(std::function<void()> work) = 0;
};

}  // namespace weir::device
