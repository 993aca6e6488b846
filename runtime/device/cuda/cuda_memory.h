// CudaMemory is the memory of a GPU. A kDevice block is memory of the GPU, which the host cannot
// touch; a kShared block is pinned memory of the host, which kernels reach at the same address.
// Memory of the transport becomes such memory by Adopt. Copies run in a stream of their own. A copy
// to or from the host goes through a small pinned buffer of the memory, in parts: the driver may
// pin the pages of the host for a large copy, which takes longer than the copy where pinning is
// slow.
//
// Thread rule: as DeviceMemory.
#pragma once

#include <memory>

#include "runtime/base/first_error.h"
#include "runtime/base/mutex.h"
#include "runtime/device/cuda/cuda_api.h"
#include "runtime/device/device_memory.h"

namespace weir::device {

class CudaMemory final : public DeviceMemory {
 public:
  // Errors (W0553) are those of the first calls to the GPU. `api` must outlive the memory and its
  // blocks.
  static absl::StatusOr<std::unique_ptr<CudaMemory>> Create(CudaApi* api, int gpu);
  ~CudaMemory() override;

  absl::StatusOr<DeviceBlock> Allocate(int64_t bytes, Reach reach) override;
  absl::StatusOr<DeviceBlock> Adopt(char* base, int64_t bytes) override;
  bool host_visible() const override { return false; }
  void CopyIn(char* to, const void* from, int64_t bytes) override;
  void CopyOut(void* to, const char* from, int64_t bytes) const override;
  void Copy(char* to, const char* from, int64_t bytes) override;
  void Zero(char* at, int64_t bytes) override;

  // Returns the error of the first copy that failed; the error stays. What CopyOut gives after a
  // failure is NaN in every format.
  absl::Status fault() const { return fault_.status(); }

 private:
  CudaMemory(CudaApi* api, int gpu) : api_(*api), gpu_(gpu) {}
  void MoveNow(void* to, const void* from, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OutOfMemory(int64_t bytes, Reach reach) const;

  CudaApi& api_;
  const int gpu_;
  mutable Mutex mutex_;
  CudaStream stream_ ABSL_GUARDED_BY(mutex_);
  char* staging_ ABSL_GUARDED_BY(mutex_) = nullptr;  // kStagingBytes of pinned memory
  mutable FirstError fault_;
};

// Returns OK, or the error of a call of CUDA (W0553). `what` names the call.
absl::Status StatusOf(const CudaApi& api, int gpu, CudaResult result, const char* what);

}  // namespace weir::device
