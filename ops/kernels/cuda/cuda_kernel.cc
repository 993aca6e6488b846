#include "ops/kernels/cuda/cuda_kernel.h"

#include "runtime/device/cuda/cuda_queue.h"

#ifdef WEIR_CUDA_EMULATED
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/walled_memory.h"
#endif

namespace weir::kernels::WEIR_CUDA_SPACE {

absl::Status CudaKernel::Run(const KernelArgs& args, const LaunchContext& launch) {
  const device::CudaStream stream = static_cast<device::CudaQueue*>(launch.queue)->stream();
#ifdef WEIR_CUDA_EMULATED
  // The memory of an emulated device is walled: kernels reach it at addresses inside the wall.
  std::vector<const void*> inputs;
  for (const void* input : args.inputs) inputs.push_back(device::WalledMemory::Inside(input));
  std::vector<void*> outputs;
  for (void* output : args.outputs) outputs.push_back(device::WalledMemory::Inside(output));
  KernelArgs inside = args;
  inside.inputs = inputs;
  inside.outputs = absl::MakeConstSpan(outputs);
  void* const workspace = device::WalledMemory::Inside(launch.workspace);
  if (workspace_bytes() > 0) {
    // A NaN in every format: what a kernel reads of its workspace without having written it shows.
    // A library's workspace is large, and only its beginning is used here.
    constexpr int64_t kPoisonedMax = 1 << 20;
    const struct {
      void* at;
      int64_t bytes;
    } poison{workspace, std::min(workspace_bytes(), kPoisonedMax)};
    if (!device::Records(stream, poison)) {
      static_cast<device::EmulatedStream*>(stream.handle)->Put([poison] {
        std::memset(poison.at, 0xff, poison.bytes);
      });
    }
  }
  return Enqueue(inside, workspace, stream);
#else
  return Enqueue(args, launch.workspace, stream);
#endif
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
