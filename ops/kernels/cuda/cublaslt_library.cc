#include "ops/kernels/cuda/cublaslt_library.h"

#ifndef WEIR_CUDA_EMULATED

#include <cuda_runtime_api.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/shared_library.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr char kFile[] = "libcublasLt.so.13";
constexpr char kUnfit[] = "libcublasLt.so.12";

absl::StatusOr<const CublasLtLibrary*> OpenOnce() {
  WEIR_ASSIGN_OR_RETURN(void* library,
                        OpenSharedLibrary(kFile, kUnfit, {"cu13/lib", "cublas/lib"}));
  auto* table = new CublasLtLibrary;  // stays until the process ends
#define WEIR_CUBLASLT_LOAD(function)                                             \
  {                                                                              \
    WEIR_ASSIGN_OR_RETURN(void* address, FunctionOf(library, kFile, #function)); \
    table->function = reinterpret_cast<decltype(table->function)>(address);      \
  }
  WEIR_CUBLASLT_FUNCTIONS(WEIR_CUBLASLT_LOAD)
#undef WEIR_CUBLASLT_LOAD
  return table;
}

// The handles of this process, one for each device.
struct Handles {
  Mutex mutex;
  std::map<int, cublasLtHandle_t> of_device ABSL_GUARDED_BY(mutex);
};

}  // namespace

absl::StatusOr<const CublasLtLibrary*> CublasLtLibrary::Open() {
  static const auto* opened = new absl::StatusOr<const CublasLtLibrary*>(OpenOnce());
  return *opened;
}

absl::StatusOr<cublasLtHandle_t> CublasLtLibrary::Handle() const {
  static auto* handles = new Handles;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) {
    return absl::InternalError(
        absl::StrCat("W0567: no device for cuBLASLt: ", cudaGetErrorString(error)));
  }
  MutexLock lock(&handles->mutex);
  cublasLtHandle_t& handle = handles->of_device[device];
  if (handle == nullptr) WEIR_RETURN_IF_ERROR(Check(cublasLtCreate(&handle), "cublasLtCreate"));
  return handle;
}

absl::Status CublasLtLibrary::Check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("W0567: cuBLASLt fails in ", what, ": ", cublasLtGetStatusString(status)));
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE

#endif
