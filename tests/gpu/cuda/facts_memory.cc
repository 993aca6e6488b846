// Measures what copies and allocations cost.

#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kRepeats = 7;

// Returns the median seconds that the device takes for what `queue` puts onto `stream`.
template <typename Queue>
double Seconds(cudaStream_t stream, Queue queue) {
  cudaEvent_t begin, end;
  WEIR_CHECK_CUDA(cudaEventCreate(&begin));
  WEIR_CHECK_CUDA(cudaEventCreate(&end));
  queue();
  std::vector<double> seconds;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    WEIR_CHECK_CUDA(cudaEventRecord(begin, stream));
    queue();
    WEIR_CHECK_CUDA(cudaEventRecord(end, stream));
    WEIR_CHECK_CUDA(cudaStreamSynchronize(stream));
    seconds.push_back(ElapsedMs(begin, end) * 1e-3);
  }
  WEIR_CHECK_CUDA(cudaEventDestroy(begin));
  WEIR_CHECK_CUDA(cudaEventDestroy(end));
  return Median(seconds);
}

void PrintRate(const std::string& fact, double bytes, double seconds) {
  PrintFact(fact, bytes / seconds * 1e-9, "GB/s");
}

void MeasureDeviceCopies(cudaStream_t stream) {
  constexpr size_t kBytes = 1024 * kMiB;
  void *from, *to;
  WEIR_CHECK_CUDA(cudaMalloc(&from, kBytes));
  WEIR_CHECK_CUDA(cudaMalloc(&to, kBytes));
  LaunchFill(stream, from, kBytes, 132 * 8);
  // Bytes read and bytes written both count.
  PrintRate("copy.device_memcpy", 2.0 * kBytes, Seconds(stream, [&] {
              WEIR_CHECK_CUDA(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream));
            }));
  for (int blocks : {132 * 4, 132 * 8, 132 * 32, static_cast<int>(kBytes / 16 / 256)}) {
    PrintRate("copy.device_kernel_" + std::to_string(blocks) + "_blocks", 2.0 * kBytes,
              Seconds(stream, [&] { LaunchCopy(stream, from, to, kBytes, blocks); }));
  }
  PrintRate("copy.device_fill", kBytes,
            Seconds(stream, [&] { LaunchFill(stream, to, kBytes, 132 * 8); }));
  PrintRate("copy.device_memset", kBytes,
            Seconds(stream, [&] { WEIR_CHECK_CUDA(cudaMemsetAsync(to, 0, kBytes, stream)); }));
  PrintRate("copy.device_read", kBytes, Seconds(stream, [&] {
              LaunchRead(stream, from, static_cast<uint32_t*>(to), kBytes, 132 * 8);
            }));
  // A tensor of a model: what fits the L2 cache, and what does not.
  for (size_t mib : {8, 32, 128}) {
    PrintRate("copy.device_kernel_of_" + std::to_string(mib) + "_MiB", 2.0 * mib * kMiB,
              Seconds(stream, [&] { LaunchCopy(stream, from, to, mib * kMiB, 132 * 8); }));
  }
  WEIR_CHECK_CUDA(cudaFree(from));
  WEIR_CHECK_CUDA(cudaFree(to));
}

void MeasureHostCopies(cudaStream_t stream) {
  constexpr size_t kBytes = 256 * kMiB;
  void *device, *back, *pinned, *other;
  WEIR_CHECK_CUDA(cudaMalloc(&device, kBytes));
  WEIR_CHECK_CUDA(cudaMalloc(&back, kBytes));
  WEIR_CHECK_CUDA(cudaHostAlloc(&pinned, kBytes, cudaHostAllocMapped));
  WEIR_CHECK_CUDA(cudaHostAlloc(&other, kBytes, cudaHostAllocMapped));
  void* pageable = std::malloc(kBytes);
  std::memset(pageable, 1, kBytes);
  std::memset(pinned, 1, kBytes);
  std::memset(other, 1, kBytes);
  struct Direction {
    const char* name;
    cudaMemcpyKind kind;
  };
  for (const Direction& direction : {Direction{"to_device", cudaMemcpyHostToDevice},
                                     Direction{"to_host", cudaMemcpyDeviceToHost}}) {
    const bool down = direction.kind == cudaMemcpyHostToDevice;
    for (const auto& [name, host] :
         {std::pair{"pinned_", pinned}, std::pair{"pageable_", pageable}}) {
      PrintRate(std::string("copy.") + name + direction.name, kBytes, Seconds(stream, [&] {
                  WEIR_CHECK_CUDA(cudaMemcpyAsync(down ? device : host, down ? host : device,
                                                  kBytes, direction.kind, stream));
                }));
    }
  }
  cudaStream_t second;
  WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  std::vector<double> both;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const int64_t begin = HostNs();
    WEIR_CHECK_CUDA(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, stream));
    WEIR_CHECK_CUDA(cudaMemcpyAsync(other, back, kBytes, cudaMemcpyDeviceToHost, second));
    WEIR_CHECK_CUDA(cudaDeviceSynchronize());
    both.push_back((HostNs() - begin) * 1e-9);
  }
  PrintRate("copy.pinned_both_ways", 2.0 * kBytes, Median(both));

  void* mapped = nullptr;
  WEIR_CHECK_CUDA(cudaHostGetDevicePointer(&mapped, pinned, 0));
  for (int blocks : {16, 132, 132 * 4}) {
    const std::string suffix = "_" + std::to_string(blocks) + "_blocks";
    PrintRate("copy.kernel_reads_pinned" + suffix, kBytes,
              Seconds(stream, [&] { LaunchCopy(stream, mapped, device, kBytes, blocks); }));
    PrintRate("copy.kernel_writes_pinned" + suffix, kBytes,
              Seconds(stream, [&] { LaunchCopy(stream, device, mapped, kBytes, blocks); }));
  }

  // What a small copy costs the host, and how long it keeps the stream.
  constexpr int kCalls = 200;
  for (size_t bytes : {size_t{4}, size_t{4096}, size_t{65536}}) {
    struct Small {
      const char* name;
      void* to;
      void* from;
      cudaMemcpyKind kind;
    };
    const Small kinds[] = {{"pinned_to_device", device, pinned, cudaMemcpyHostToDevice},
                           {"pinned_to_host", pinned, device, cudaMemcpyDeviceToHost},
                           {"pageable_to_device", device, pageable, cudaMemcpyHostToDevice},
                           {"in_device", back, device, cudaMemcpyDeviceToDevice}};
    for (const Small& kind : kinds) {
      int64_t host = 0;
      const double seconds = Seconds(stream, [&] {
        LaunchDelay(stream, 3'000'000);
        const int64_t begin = HostNs();
        for (int i = 0; i < kCalls; ++i) {
          WEIR_CHECK_CUDA(cudaMemcpyAsync(kind.to, kind.from, bytes, kind.kind, stream));
        }
        host = HostNs() - begin;
      });
      const std::string name =
          std::string("copy.small.") + kind.name + "." + std::to_string(bytes) + "_bytes";
      PrintFact(name + ".host", static_cast<double>(host) / kCalls, "ns");
      PrintFact(name + ".device", (seconds * 1e9 - 3e6) / kCalls, "ns");
    }
  }
  std::free(pageable);
  WEIR_CHECK_CUDA(cudaFreeHost(pinned));
  WEIR_CHECK_CUDA(cudaFreeHost(other));
  WEIR_CHECK_CUDA(cudaFree(device));
  WEIR_CHECK_CUDA(cudaFree(back));
  WEIR_CHECK_CUDA(cudaStreamDestroy(second));
}

template <typename Function>
Function FindDriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  if (code != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Function>(function);
}

// Reserves, makes and maps 8 GiB as an arena that other processes could map, and copies inside it.
void MeasureReservation(cudaStream_t stream) {
  const auto reserve = FindDriverFunction<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  const auto create = FindDriverFunction<decltype(&cuMemCreate)>("cuMemCreate");
  const auto map = FindDriverFunction<decltype(&cuMemMap)>("cuMemMap");
  const auto allow = FindDriverFunction<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  const auto unmap = FindDriverFunction<decltype(&cuMemUnmap)>("cuMemUnmap");
  const auto release = FindDriverFunction<decltype(&cuMemRelease)>("cuMemRelease");
  const auto drop = FindDriverFunction<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  const auto share =
      FindDriverFunction<decltype(&cuMemExportToShareableHandle)>("cuMemExportToShareableHandle");
  if (!reserve || !create || !map || !allow || !unmap || !release || !drop || !share) {
    PrintText("reservation.code", "the driver lacks the calls of virtual memory");
    return;
  }
  constexpr size_t kBytes = 8192 * kMiB;
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle memory = 0;
  const int64_t begin = HostNs();
  CUresult code = reserve(&address, kBytes, 0, 0, 0);
  if (code == CUDA_SUCCESS) code = create(&memory, kBytes, &kind, 0);
  const int64_t created = HostNs();
  if (code == CUDA_SUCCESS) code = map(address, kBytes, 0, memory, 0);
  if (code == CUDA_SUCCESS) code = allow(address, kBytes, &access, 1);
  const int64_t mapped = HostNs();
  PrintFact("reservation.code", code, "CUresult");
  if (code != CUDA_SUCCESS) return;
  PrintFact("reservation.create_8_GiB", (created - begin) * 1e-6, "ms");
  PrintFact("reservation.map_8_GiB", (mapped - created) * 1e-6, "ms");
  int descriptor = -1;
  code = share(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  PrintFact("reservation.export_code", code, "CUresult");
  void* from = reinterpret_cast<void*>(address);
  void* to = reinterpret_cast<void*>(address + kBytes / 2);
  PrintRate("reservation.copy", 2048.0 * kMiB,
            Seconds(stream, [&] { LaunchCopy(stream, from, to, 1024 * kMiB, 132 * 8); }));
  PrintRate("reservation.memset", static_cast<double>(kBytes),
            Seconds(stream, [&] { WEIR_CHECK_CUDA(cudaMemsetAsync(from, 0, kBytes, stream)); }));
  unmap(address, kBytes);
  release(memory);
  drop(address, kBytes);
}

}  // namespace

void MeasureCopies() {
  cudaStream_t stream;
  WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MeasureDeviceCopies(stream);
  MeasureHostCopies(stream);
  WEIR_CHECK_CUDA(cudaStreamDestroy(stream));
}

void MeasureAllocation() {
  constexpr size_t kBytes = 1024 * kMiB;
  const auto timed = [](const char* fact, auto call) {
    const int64_t begin = HostNs();
    call();
    PrintFact(fact, (HostNs() - begin) * 1e-6, "ms");
  };
  void *pageable = nullptr, *pinned = nullptr, *device = nullptr;
  if (posix_memalign(&pageable, 4096, kBytes) != 0) {
    PrintText("host.register_1_GiB", "the host has no GiB of memory left");
    return;
  }
  timed("host.touch_1_GiB", [&] { std::memset(pageable, 1, kBytes); });
  timed("host.register_1_GiB",
        [&] { WEIR_CHECK_CUDA(cudaHostRegister(pageable, kBytes, cudaHostRegisterDefault)); });
  timed("host.unregister_1_GiB", [&] { WEIR_CHECK_CUDA(cudaHostUnregister(pageable)); });
  std::free(pageable);
  timed("host.allocate_pinned_1_GiB",
        [&] { WEIR_CHECK_CUDA(cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault)); });
  timed("host.free_pinned_1_GiB", [&] { WEIR_CHECK_CUDA(cudaFreeHost(pinned)); });
  timed("device.allocate_1_GiB", [&] { WEIR_CHECK_CUDA(cudaMalloc(&device, kBytes)); });
  timed("device.free_1_GiB", [&] { WEIR_CHECK_CUDA(cudaFree(device)); });
  cudaStream_t stream;
  WEIR_CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MeasureReservation(stream);
  WEIR_CHECK_CUDA(cudaStreamDestroy(stream));
}

}  // namespace weir::gpu
