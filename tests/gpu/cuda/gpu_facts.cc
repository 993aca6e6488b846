// Measures what Weir's use of a GPU rests on: the device, launches, events, graphs, signals, copies
// and allocations.
//
//   gpu_facts [GROUP...]    all groups, or the named ones: launches, events, graphs, signals,
//   copies, allocation

#include <cstdio>
#include <cstring>

#include "tests/gpu/cuda/facts.h"

namespace weir::gpu {
namespace {

void MeasureDevice() {
  int64_t begin = HostNs();
  WEIR_CHECK_CUDA(cudaSetDevice(0));
  PrintFact("device.context", (HostNs() - begin) * 1e-6, "ms");
  begin = HostNs();
  LaunchEmpty(nullptr);
  WEIR_CHECK_CUDA(cudaDeviceSynchronize());
  PrintFact("device.first_launch", (HostNs() - begin) * 1e-6, "ms");

  int number = 0;
  WEIR_CHECK_CUDA(cudaDriverGetVersion(&number));
  PrintFact("version.driver_api", number, "1000 * major + 10 * minor");
  WEIR_CHECK_CUDA(cudaRuntimeGetVersion(&number));
  PrintFact("version.runtime", number, "1000 * major + 10 * minor");
  WEIR_CHECK_CUDA(cudaGetDeviceCount(&number));
  PrintFact("device.count", number, "devices");
  cudaDeviceProp properties;
  WEIR_CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  PrintText("device.name", properties.name);
  PrintFact("device.compute_capability", properties.major + properties.minor / 10.0, "");
  PrintFact("device.multiprocessors", properties.multiProcessorCount, "multiprocessors");
  PrintFact("device.l2", properties.l2CacheSize, "bytes");
  PrintFact("device.shared_memory_per_block", properties.sharedMemPerBlockOptin, "bytes");
  PrintFact("device.copy_engines", properties.asyncEngineCount, "engines");
  size_t free = 0, total = 0;
  WEIR_CHECK_CUDA(cudaMemGetInfo(&free, &total));
  PrintFact("device.memory_free", free, "bytes");
  PrintFact("device.memory_total", total, "bytes");

  struct Attribute {
    const char* fact;
    cudaDeviceAttr id;
  };
  const Attribute attributes[] = {
      {"device.sm_clock", cudaDevAttrClockRate},
      {"device.memory_clock", cudaDevAttrMemoryClockRate},
      {"device.compute_mode", cudaDevAttrComputeMode},
      {"device.host_register", cudaDevAttrHostRegisterSupported},
      {"device.memory_pools", cudaDevAttrMemoryPoolsSupported},
      {"device.host_native_atomics", cudaDevAttrHostNativeAtomicSupported},
      {"device.pageable_memory_access", cudaDevAttrPageableMemoryAccess},
      {"device.gpu_direct_rdma", cudaDevAttrGPUDirectRDMASupported},
  };
  for (const Attribute& attribute : attributes) {
    int value = 0;
    WEIR_CHECK_CUDA(cudaDeviceGetAttribute(&value, attribute.id, 0));
    PrintFact(attribute.fact, value, std::strstr(attribute.fact, "clock") ? "kHz" : "");
  }
  int least = 0, greatest = 0;
  WEIR_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  PrintFact("stream.priority_least", least, "");
  PrintFact("stream.priority_greatest", greatest, "");
}

}  // namespace
}  // namespace weir::gpu

int main(int argc, char** argv) {
  struct Group {
    const char* name;
    void (*measure)();
  };
  using namespace weir::gpu;
  const Group groups[] = {
      {"launches", MeasureLaunches}, {"events", MeasureEvents}, {"graphs", MeasureGraphs},
      {"signals", MeasureSignals},   {"copies", MeasureCopies}, {"allocation", MeasureAllocation},
  };
  for (int i = 1; i < argc; ++i) {
    bool is_known = false;
    for (const Group& group : groups) is_known |= std::strcmp(group.name, argv[i]) == 0;
    if (!is_known) {
      std::fprintf(stderr,
                   "gpu_facts: there is no group '%s'. The groups are launches, events, graphs, "
                   "signals, copies and allocation; without a name all are measured.\n",
                   argv[i]);
      return 2;
    }
  }
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    std::fprintf(stderr, "gpu_facts: no GPU can be used here: %s. Expected a GPU and its driver.\n",
                 code != cudaSuccess ? cudaGetErrorString(code) : "the driver lists none");
    return 69;
  }
  MeasureDevice();
  for (const Group& group : groups) {
    bool is_wanted = argc == 1;
    for (int i = 1; i < argc; ++i) is_wanted |= std::strcmp(group.name, argv[i]) == 0;
    if (is_wanted) group.measure();
  }
  return 0;
}
