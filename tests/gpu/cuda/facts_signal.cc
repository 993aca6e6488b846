// Measures the ways in which the host learns that work on a device is done: what each way costs,
// and how late the news arrives.
//
// The device's and the host's clocks are not compared. A kernel stores into pinned memory as its
// last act; the host sees the store first and the signal later, and the time between the two is the
// lateness of the signal.

#include <cuda.h>

#include <string>
#include <vector>

#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

constexpr int kRounds = 200;

using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);

// The driver's cuStreamWriteValue64, or null if the driver has none.
WriteValue FindWriteValue() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t code = cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &function,
                                                            12000, cudaEnableDefault, &found);
  if (code != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<WriteValue>(function);
}

struct Words {
  volatile uint64_t* host;    // [0] the kernel's store, [8] the signal
  volatile uint64_t* device;  // the same memory as the device addresses it
};

// Measures a signal. `queue(round)` queues it behind a kernel; `is_there(round)` says whether the
// host has it. The first rounds hold the stream until all is queued, and show how late the signal
// is; the others show the whole way.
template <typename Queue, typename IsThere>
void MeasureSignal(const std::string& name, cudaStream_t stream, const Words& words, Queue queue,
                   IsThere is_there) {
  std::vector<double> queued, late, whole;
  for (uint64_t round = 1; round <= 2 * kRounds; ++round) {
    const bool is_held = round <= kRounds;
    words.host[0] = 0;
    words.host[8] = 0;
    if (is_held) LaunchDelay(stream, 60'000);
    const int64_t begin = HostNs();
    LaunchStore(stream, words.device, round);
    const int64_t launched = HostNs();
    queue(round);
    const int64_t all_queued = HostNs();
    while (words.host[0] != round) {
    }
    const int64_t stored = HostNs();
    while (!is_there(round)) {
    }
    const int64_t there = HostNs();
    if (is_held) {
      queued.push_back(static_cast<double>(all_queued - launched));
      late.push_back(static_cast<double>(there - stored));
    } else {
      whole.push_back(static_cast<double>(there - begin));
    }
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  PrintFact("signal." + name + ".queue", Median(queued), "ns");
  PrintFact("signal." + name + ".late", Median(late), "ns");
  PrintFact("signal." + name + ".launch_to_known", Median(whole), "ns");
}

void CUDART_CB StoreFromHost(void* word) { *static_cast<volatile uint64_t*>(word) = 1; }

}  // namespace

void MeasureSignals() {
  cudaStream_t stream;
  WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void *host = nullptr, *device = nullptr;
  WEIR_CHECK_CUDA(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
  WEIR_CHECK_CUDA(cudaHostGetDevicePointer(&device, host, 0));
  const Words words{static_cast<volatile uint64_t*>(host), static_cast<volatile uint64_t*>(device)};
  cudaEvent_t event, sleeping;
  WEIR_CHECK_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  WEIR_CHECK_CUDA(
      cudaEventCreateWithFlags(&sleeping, cudaEventDisableTiming | cudaEventBlockingSync));

  const auto none = [](uint64_t) {};
  MeasureSignal("kernel_store", stream, words, none, [](uint64_t) { return true; });
  MeasureSignal(
      "next_kernel_store", stream, words,
      [&](uint64_t round) { LaunchStore(stream, words.device + 8, round); },
      [&](uint64_t round) { return words.host[8] == round; });
  const auto record = [&](uint64_t) { WEIR_CHECK_CUDA(cudaEventRecord(event, stream)); };
  MeasureSignal("event_query", stream, words, record,
                [&](uint64_t) { return cudaEventQuery(event) == cudaSuccess; });
  MeasureSignal("event_synchronize", stream, words, record, [&](uint64_t) {
    WEIR_CHECK_CUDA(cudaEventSynchronize(event));
    return true;
  });
  MeasureSignal(
      "event_synchronize_sleeping", stream, words,
      [&](uint64_t) { WEIR_CHECK_CUDA(cudaEventRecord(sleeping, stream)); },
      [&](uint64_t) {
        WEIR_CHECK_CUDA(cudaEventSynchronize(sleeping));
        return true;
      });
  MeasureSignal("stream_synchronize", stream, words, none, [&](uint64_t) {
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    return true;
  });
  MeasureSignal(
      "host_function", stream, words,
      [&](uint64_t) {
        WEIR_CHECK_CUDA(
            cudaLaunchHostFunc(stream, StoreFromHost, const_cast<uint64_t*>(words.host + 8)));
      },
      [&](uint64_t) { return words.host[8] == 1; });
  if (const WriteValue write = FindWriteValue(); write != nullptr) {
    const auto address = reinterpret_cast<CUdeviceptr>(words.device + 8);
    const CUresult code =
        write(reinterpret_cast<CUstream>(stream), address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    PrintFact("signal.write_value.code", code, "CUresult");
    if (code == CUDA_SUCCESS) {
      MeasureSignal(
          "write_value", stream, words,
          [&](uint64_t round) {
            write(reinterpret_cast<CUstream>(stream), address, round,
                  CU_STREAM_WRITE_VALUE_DEFAULT);
          },
          [&](uint64_t round) { return words.host[8] == round; });
      // Not every driver takes the flag, and a host that waits for a refused write waits for ever.
      const int without = write(reinterpret_cast<CUstream>(stream), address, 0,
                                CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
      PrintFact("signal.write_value_without_barrier.code", without, "CUresult");
      if (without == CUDA_SUCCESS) {
        MeasureSignal(
            "write_value_without_barrier", stream, words,
            [&](uint64_t round) {
              write(reinterpret_cast<CUstream>(stream), address, round,
                    CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
            },
            [&](uint64_t round) { return words.host[8] == round; });
      }
    }
  } else {
    PrintText("signal.write_value.code", "the driver has no cuStreamWriteValue64");
  }
  WEIR_CHECK_CUDA(cudaEventDestroy(event));
  WEIR_CHECK_CUDA(cudaEventDestroy(sleeping));
  WEIR_CHECK_CUDA(cudaFreeHost(host));
  WEIR_CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace weir::gpu
