// Attention over cuDNN, opened at run time: about ten times as fast as the kernels of this folder,
// and for fewer shapes. Thread rule: one call at a time for each object.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/attention.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Returns whether cuDNN may compute the call: this program is built with cuDNN's frontend, and
// cuDNN has such shapes. Pure: whether the machine has cuDNN shows when a call is made.
bool CudnnMayAttend(const AttentionSizes& sizes);
bool CudnnMayAttendGrad(const AttentionSizes& sizes);

// Returns the bytes of workspace that a call may use, from the sizes alone.
int64_t CudnnWorkspace(const AttentionSizes& sizes);
int64_t CudnnGradWorkspace(const AttentionSizes& sizes);

class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;
  // `workspace` has CudnnWorkspace bytes. W0568: cuDNN refuses.
  virtual absl::Status Enqueue(const AttentionWork& work, void* workspace,
                               device::CudaStream stream) = 0;
};

class CudnnAttentionGrad {
 public:
  virtual ~CudnnAttentionGrad() = default;
  // `workspace` has CudnnGradWorkspace bytes. The same operands give the same bits. W0568: cuDNN
  // refuses.
  virtual absl::Status Enqueue(const AttentionGradWork& work, void* workspace,
                               device::CudaStream stream) = 0;
};

// Opens cuDNN and chooses an algorithm for the calling thread's device, which takes up to seconds.
// The error says why cuDNN does not compute such a call here: the library is missing (W0565), or it
// refuses the shape or wants more workspace (W0568).
// Precondition: CudnnMayAttend, or CudnnMayAttendGrad.
enum class KeepsLse : uint8_t { kNo, kYes };
absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(const AttentionSizes& sizes,
                                                                   KeepsLse lse);
absl::StatusOr<std::unique_ptr<CudnnAttentionGrad>> MakeCudnnAttentionGrad(
    const AttentionSizes& sizes);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
