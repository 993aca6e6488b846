// The calls of CudaApi on the CUDA runtime, which is linked statically: a program with it starts on
// machines without any file of NVIDIA's.
#include "runtime/device/cuda/cuda_api.h"

#ifdef WEIR_HAS_CUDA
#include <cuda_runtime_api.h>

#include <cstdlib>

namespace weir::device {
namespace {

// An error that does not stay is cleared, so that LastError speaks of launches alone.
CudaResult ResultOf(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return static_cast<CudaResult>(error);
}

cudaStream_t StreamOf(CudaStream stream) { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t EventOf(CudaEvent event) { return static_cast<cudaEvent_t>(event.handle); }

class CudaRuntimeApi final : public CudaApi {
 public:
  std::string TextOf(CudaResult result) const override {
    const auto error = static_cast<cudaError_t>(result);
    return std::string(cudaGetErrorName(error)) + " (" + std::to_string(static_cast<int>(result)) +
           "): " + cudaGetErrorString(error);
  }

  CudaResult GetVersions(int* driver, int* runtime) override {
    const CudaResult result = ResultOf(cudaDriverGetVersion(driver));
    return result == CudaResult::kSuccess ? ResultOf(cudaRuntimeGetVersion(runtime)) : result;
  }
  CudaResult CountDevices(int* count) override { return ResultOf(cudaGetDeviceCount(count)); }
  CudaResult GetFacts(int device, GpuFacts* facts) override {
    cudaDeviceProp properties;
    const CudaResult result = ResultOf(cudaGetDeviceProperties(&properties, device));
    if (result != CudaResult::kSuccess) return result;
    facts->name = properties.name;
    facts->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    facts->compute_major = properties.major;
    facts->compute_minor = properties.minor;
    facts->num_multiprocessors = properties.multiProcessorCount;
    return result;
  }
  CudaResult SetDevice(int device) override {
    thread_local int current = -1;
    if (device == current) return CudaResult::kSuccess;
    const CudaResult result = ResultOf(cudaSetDevice(device));
    if (result == CudaResult::kSuccess) current = device;
    return result;
  }
  CudaResult GetMemory(int64_t* free_bytes, int64_t* all) override {
    size_t free_size = 0, all_size = 0;
    const CudaResult result = ResultOf(cudaMemGetInfo(&free_size, &all_size));
    *free_bytes = static_cast<int64_t>(free_size);
    *all = static_cast<int64_t>(all_size);
    return result;
  }

  CudaResult Malloc(char** base, int64_t bytes) override {
    return ResultOf(cudaMalloc(reinterpret_cast<void**>(base), static_cast<size_t>(bytes)));
  }
  CudaResult Free(char* base) override { return ResultOf(cudaFree(base)); }
  CudaResult MallocHost(char** base, int64_t bytes) override {
    return ResultOf(cudaHostAlloc(reinterpret_cast<void**>(base), static_cast<size_t>(bytes),
                                  cudaHostAllocPortable | cudaHostAllocMapped));
  }
  CudaResult FreeHost(char* base) override { return ResultOf(cudaFreeHost(base)); }
  CudaResult RegisterHost(char* base, int64_t bytes) override {
    return ResultOf(cudaHostRegister(base, static_cast<size_t>(bytes),
                                     cudaHostRegisterPortable | cudaHostRegisterMapped));
  }
  CudaResult UnregisterHost(char* base) override { return ResultOf(cudaHostUnregister(base)); }
  bool IsReachable(const char* host) override {
    cudaPointerAttributes attributes;
    return ResultOf(cudaPointerGetAttributes(&attributes, host)) == CudaResult::kSuccess &&
           attributes.type == cudaMemoryTypeHost;
  }

  CudaResult CreateStream(Priority priority, CudaStream* stream) override {
    int least = 0, greatest = 0;
    const CudaResult result = ResultOf(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (result != CudaResult::kSuccess) return result;
    return ResultOf(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(&stream->handle),
                                                 cudaStreamNonBlocking,
                                                 priority == Priority::kHigh ? greatest : least));
  }
  CudaResult DestroyStream(CudaStream stream) override {
    return ResultOf(cudaStreamDestroy(StreamOf(stream)));
  }
  CudaResult SynchronizeStream(CudaStream stream) override {
    return ResultOf(cudaStreamSynchronize(StreamOf(stream)));
  }

  CudaResult CreateEvent(CudaEvent* event) override {
    return ResultOf(
        cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(&event->handle), cudaEventDefault));
  }
  CudaResult DestroyEvent(CudaEvent event) override {
    return ResultOf(cudaEventDestroy(EventOf(event)));
  }
  CudaResult RecordEvent(CudaEvent event, CudaStream stream) override {
    return ResultOf(cudaEventRecord(EventOf(event), StreamOf(stream)));
  }
  CudaResult QueryEvent(CudaEvent event) override {
    return ResultOf(cudaEventQuery(EventOf(event)));
  }
  CudaResult WaitEvent(CudaStream stream, CudaEvent event) override {
    return ResultOf(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
  }
  CudaResult ElapsedMs(CudaEvent from, CudaEvent to, float* ms) override {
    return ResultOf(cudaEventElapsedTime(ms, EventOf(from), EventOf(to)));
  }

  CudaResult Copy(void* to, const void* from, int64_t bytes, CudaStream stream) override {
    return ResultOf(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, StreamOf(stream)));
  }
  CudaResult Zero(void* at, int64_t bytes, CudaStream stream) override {
    return ResultOf(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), StreamOf(stream)));
  }

  CudaResult BeginCapture(CudaStream stream) override {
    return ResultOf(cudaStreamBeginCapture(StreamOf(stream), cudaStreamCaptureModeThreadLocal));
  }
  CudaResult LastCaptured(CudaStream stream, CudaNode* node) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* last = nullptr;
    size_t num_last = 0;
    const CudaResult result = ResultOf(cudaStreamGetCaptureInfo(
        StreamOf(stream), &status, nullptr, nullptr, &last, nullptr, &num_last));
    if (result != CudaResult::kSuccess) return result;
    if (status != cudaStreamCaptureStatusActive || num_last != 1)
      return CudaResult::kStreamCaptureInvalidated;
    node->handle = last[0];
    return result;
  }
  CudaResult EndCapture(CudaStream stream, CudaGraph* graph) override {
    return ResultOf(
        cudaStreamEndCapture(StreamOf(stream), reinterpret_cast<cudaGraph_t*>(&graph->handle)));
  }
  CudaResult DestroyGraph(CudaGraph graph) override {
    return ResultOf(cudaGraphDestroy(static_cast<cudaGraph_t>(graph.handle)));
  }
  CudaResult Instantiate(CudaGraph graph, CudaGraphExec* exec) override {
    return ResultOf(cudaGraphInstantiate(reinterpret_cast<cudaGraphExec_t*>(&exec->handle),
                                         static_cast<cudaGraph_t>(graph.handle), 0));
  }
  CudaResult DestroyExec(CudaGraphExec exec) override {
    return ResultOf(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec.handle)));
  }
  CudaResult SetKernel(CudaGraphExec exec, CudaNode node, const KernelLaunch& launch) override {
    constexpr size_t kParametersMax = 64;
    void* parameters[kParametersMax];
    if (launch.offsets.size() > kParametersMax) return CudaResult::kInvalidValue;
    for (size_t i = 0; i < launch.offsets.size(); ++i)
      parameters[i] = const_cast<char*>(launch.parameters.data() + launch.offsets[i]);
    cudaKernelNodeParams now{};
    now.func = const_cast<void*>(launch.kernel);
    now.gridDim = dim3(launch.blocks[0], launch.blocks[1], launch.blocks[2]);
    now.blockDim = dim3(launch.threads[0], launch.threads[1], launch.threads[2]);
    now.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
    now.kernelParams = parameters;
    return ResultOf(cudaGraphExecKernelNodeSetParams(static_cast<cudaGraphExec_t>(exec.handle),
                                                     static_cast<cudaGraphNode_t>(node.handle),
                                                     &now));
  }
  CudaResult LaunchGraph(CudaGraphExec exec, CudaStream stream) override {
    return ResultOf(cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec.handle), StreamOf(stream)));
  }

  CudaResult LastError() override { return static_cast<CudaResult>(cudaGetLastError()); }
};

}  // namespace

std::unique_ptr<CudaApi> MakeCudaRuntimeApi() {
  [[maybe_unused]] static const int set = ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  return std::make_unique<CudaRuntimeApi>();
}

}  // namespace weir::device

#else

namespace weir::device {

std::unique_ptr<CudaApi> MakeCudaRuntimeApi() { return nullptr; }

}  // namespace weir::device

#endif
