// The programs that measure a GPU share this: facts on standard output, errors, clocks, and a
// kernel that waits.
//
// A fact is a line of JSON: {"fact": "launch.empty", "value": 2100, "unit": "ns"}. The programs
// know nothing of Weir's engine; they measure the machine that the engine's choices rest on.
//
// Threads: one thread calls all of this.

#ifndef WEIR_TESTS_GPU_CUDA_FACTS_H_
#define WEIR_TESTS_GPU_CUDA_FACTS_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::gpu {

// Writes one fact and flushes it. `value` is in `unit`; a value that is not finite is written as
// null.
void PrintFact(const std::string& fact, double value, const char* unit);

// Writes a fact whose value is text.
void PrintText(const std::string& fact, const std::string& text);

// Ends the program with exit code 1 and the call's name if `code` is an error. An error of CUDA
// stays with the context, so that no later figure of the same process would mean anything.
void CheckCuda(cudaError_t code, const char* call, const char* file, int line);
#define WEIR_CHECK_CUDA(call) ::weir::gpu::CheckCuda((call), #call, __FILE__, __LINE__)

// Returns the middle value. Requires: `values` is not empty.
double Median(std::vector<double> values);

// Nanoseconds of the host's steady clock.
inline int64_t HostNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Milliseconds between two events that have happened.
double ElapsedMs(cudaEvent_t begin, cudaEvent_t end);

// Queues a kernel that does nothing.
void LaunchEmpty(cudaStream_t stream);

// Queues a kernel that holds the stream for `ns` nanoseconds of the device's clock.
void LaunchDelay(cudaStream_t stream, int64_t ns);

// Queues a kernel that stores `value` at `flag`, which may lie in the host's pinned memory.
void LaunchStore(cudaStream_t stream, volatile uint64_t* flag, uint64_t value);

// Queues a copy of `bytes` (a multiple of 16) by a kernel with `blocks` blocks of 256 threads and
// 16-byte accesses.
void LaunchCopy(cudaStream_t stream, const void* from, void* to, size_t bytes, int blocks);

// Queues a kernel that reads `bytes` (a multiple of 16) and writes one word per thread only.
void LaunchRead(cudaStream_t stream, const void* from, uint32_t* sums, size_t bytes, int blocks);

// Queues a kernel that writes `bytes` (a multiple of 16) of pseudo-random bits.
void LaunchFill(cudaStream_t stream, void* to, size_t bytes, int blocks);

// The groups of facts. Each makes what it needs and frees it.
void MeasureLaunches();
void MeasureEvents();
void MeasureGraphs();
void MeasureSignals();
void MeasureCopies();
void MeasureAllocation();

}  // namespace weir::gpu

#endif  // WEIR_TESTS_GPU_CUDA_FACTS_H_
