// CudaApi is the part of the CUDA runtime that a device uses, without CUDA's headers: the real
// runtime (MakeCudaRuntimeApi), or an emulation on the host (emulated_cuda_api.h). A call does what
// the function of CUDA with the same meaning does, which each call names.
//
// Thread rule: as CUDA. SetDevice holds for the calling thread, and all other calls need it before
// them in that thread, except those that look for devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device/cuda/cuda_stream.h"

namespace weir::device {

// The result of a call, by the numbers of cudaError_t. Other numbers than these occur.
enum class CudaResult : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInsufficientDriver = 35,  // there is no driver, or the driver is older than the runtime
  kNoDevice = 100,
  kInvalidHandle = 400,
  kNotReady = 600,
  kStreamCaptureUnsupported = 900,  // a call that a capture does not allow
  kStreamCaptureInvalidated = 901,  // such a call has ended the capture
  kStreamCaptureUnjoined = 904,     // a stream of the capture has not been awaited by its first one
  kStreamCaptureIsolation = 905,    // a wait for work outside of the capture
  kHostMemoryAlreadyRegistered = 712,
};

struct CudaEvent {
  void* handle = nullptr;  // a cudaEvent_t
};

// A CudaGraph is work that a stream has captured, with its order; a CudaNode is one operation of
// it; a CudaGraphExec can be launched.
struct CudaGraph {
  void* handle = nullptr;  // a cudaGraph_t
};
struct CudaNode {
  void* handle = nullptr;  // a cudaGraphNode_t
};
struct CudaGraphExec {
  void* handle = nullptr;  // a cudaGraphExec_t
};

// A GpuFacts holds what is known of a GPU before the GPU is used.
struct GpuFacts {
  std::string name;
  int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  int num_multiprocessors = 0;
};

class CudaApi {
 public:
  enum class Priority : uint8_t { kNormal, kHigh };

  virtual ~CudaApi() = default;

  // Returns the name of a result and what it means.
  virtual std::string TextOf(CudaResult result) const = 0;

  // Versions are 1000 * major + 10 * minor. The driver's is 0 where there is no driver.
  virtual CudaResult GetVersions(int* driver, int* runtime) = 0;        // cudaDriverGetVersion
  virtual CudaResult CountDevices(int* count) = 0;                      // cudaGetDeviceCount
  virtual CudaResult GetFacts(int device, GpuFacts* facts) = 0;         // cudaGetDeviceProperties
  virtual CudaResult SetDevice(int device) = 0;                         // cudaSetDevice
  virtual CudaResult GetMemory(int64_t* free_bytes, int64_t* all) = 0;  // cudaMemGetInfo

  // Memory of the device; its contents are undefined.
  virtual CudaResult Malloc(char** base, int64_t bytes) = 0;  // cudaMalloc
  virtual CudaResult Free(char* base) = 0;                    // cudaFree
  // Memory of the host that kernels of all devices reach at the same address.
  virtual CudaResult MallocHost(char** base, int64_t bytes) = 0;  // cudaHostAlloc
  virtual CudaResult FreeHost(char* base) = 0;                    // cudaFreeHost
  // Makes memory of the host such memory until UnregisterHost.
  virtual CudaResult RegisterHost(char* base, int64_t bytes) = 0;  // cudaHostRegister
  virtual CudaResult UnregisterHost(char* base) = 0;               // cudaHostUnregister

  // Returns whether kernels reach this address of the host (cudaPointerGetAttributes).
  virtual bool IsReachable(const char* host) = 0;

  // A stream waits for no other stream unless WaitEvent says so.
  virtual CudaResult CreateStream(Priority priority, CudaStream* stream) = 0;
  // The stream still does what was put into it.
  virtual CudaResult DestroyStream(CudaStream stream) = 0;
  virtual CudaResult SynchronizeStream(CudaStream stream) = 0;

  virtual CudaResult CreateEvent(CudaEvent* event) = 0;  // with timing
  virtual CudaResult DestroyEvent(CudaEvent event) = 0;
  virtual CudaResult RecordEvent(CudaEvent event, CudaStream stream) = 0;
  // Returns kNotReady if the stream has not come to the latest record of the event.
  virtual CudaResult QueryEvent(CudaEvent event) = 0;
  // Lets what is put into the stream from now on wait for the latest record of the event.
  virtual CudaResult WaitEvent(CudaStream stream, CudaEvent event) = 0;
  // Precondition: the streams have come to the latest records of both.
  virtual CudaResult ElapsedMs(CudaEvent from, CudaEvent to, float* ms) = 0;

  // Both addresses are of a device or of the host (cudaMemcpyAsync with cudaMemcpyDefault). Memory
  // of the host that CUDA does not know makes the caller wait.
  virtual CudaResult Copy(void* to, const void* from, int64_t bytes, CudaStream stream) = 0;
  virtual CudaResult Zero(void* at, int64_t bytes, CudaStream stream) = 0;  // cudaMemsetAsync

  // Lets the stream keep what is put into it from now on, without doing it, until EndCapture, which
  // the same thread calls (cudaStreamBeginCapture, thread-local). Meanwhile this thread must not
  // allocate, free, wait, or ask about the stream's work: the call fails, and so does EndCapture.
  virtual CudaResult BeginCapture(CudaStream stream) = 0;
  // Returns the operation that the stream has captured last (cudaStreamGetCaptureInfo).
  virtual CudaResult LastCaptured(CudaStream stream, CudaNode* node) = 0;
  virtual CudaResult EndCapture(CudaStream stream, CudaGraph* graph) = 0;    // cudaStreamEndCapture
  virtual CudaResult DestroyGraph(CudaGraph graph) = 0;                      // cudaGraphDestroy
  virtual CudaResult Instantiate(CudaGraph graph, CudaGraphExec* exec) = 0;  // cudaGraphInstantiate
  // Precondition: the GPU has ended all launches of it (cudaGraphExecDestroy).
  virtual CudaResult DestroyExec(CudaGraphExec exec) = 0;
  // Gives a kernel of the graph other parameters and another shape in later launches; the kernel
  // itself stays. The graph that `exec` was made of still exists
  // (cudaGraphExecKernelNodeSetParams).
  virtual CudaResult SetKernel(CudaGraphExec exec, CudaNode node, const KernelLaunch& launch) = 0;
  // The work begins when the stream comes to it and earlier launches of `exec` have ended, and ends
  // before what the stream gets next (cudaGraphLaunch).
  virtual CudaResult LaunchGraph(CudaGraphExec exec, CudaStream stream) = 0;

  // Returns the error of a launch since the last call, or an error that stays.
  virtual CudaResult LastError() = 0;  // cudaGetLastError
};

// Returns the real runtime; null in a program that was built without the CUDA Toolkit. The first
// call lets CUDA load all kernels when a device is first used (CUDA_MODULE_LOADING), unless the
// environment says otherwise: loading a kernel later waits for the device.
std::unique_ptr<CudaApi> MakeCudaRuntimeApi();

}  // namespace weir::device
