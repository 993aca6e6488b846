// cuBLASLt as this program uses it: a table of its functions, opened at run time.
// Thread rule: cuBLASLt lets any thread call it with one handle.
#pragma once

#include "ops/kernels/cuda/cuda_mode.h"

#ifndef WEIR_CUDA_EMULATED

#include <cublasLt.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Lists the functions that this program calls.
#define WEIR_CUBLASLT_FUNCTIONS(ROW)        \
  ROW(cublasLtCreate)                       \
  ROW(cublasLtGetStatusString)              \
  ROW(cublasLtMatmul)                       \
  ROW(cublasLtMatmulAlgoConfigGetAttribute) \
  ROW(cublasLtMatmulAlgoGetHeuristic)       \
  ROW(cublasLtMatmulDescCreate)             \
  ROW(cublasLtMatmulDescDestroy)            \
  ROW(cublasLtMatmulDescSetAttribute)       \
  ROW(cublasLtMatmulPreferenceCreate)       \
  ROW(cublasLtMatmulPreferenceDestroy)      \
  ROW(cublasLtMatmulPreferenceSetAttribute) \
  ROW(cublasLtMatrixLayoutCreate)           \
  ROW(cublasLtMatrixLayoutDestroy)          \
  ROW(cublasLtMatrixLayoutSetAttribute)

struct CublasLtLibrary {
#define WEIR_CUBLASLT_MEMBER(name) decltype(&::name) name = nullptr;
  WEIR_CUBLASLT_FUNCTIONS(WEIR_CUBLASLT_MEMBER)
#undef WEIR_CUBLASLT_MEMBER

  // Returns the table, which the first call fills. W0565, W0566: as OpenSharedLibrary.
  static absl::StatusOr<const CublasLtLibrary*> Open();

  // Returns the handle of the calling thread's device. The first call for a device makes it.
  // W0567: cuBLASLt refuses.
  absl::StatusOr<cublasLtHandle_t> Handle() const;

  // Returns W0567 with cuBLASLt's own text unless `status` is success. `what` names the call.
  absl::Status Check(cublasStatus_t status, const char* what) const;
};

}  // namespace weir::kernels::WEIR_CUDA_SPACE

#endif
