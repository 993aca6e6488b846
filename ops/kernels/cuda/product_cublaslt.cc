// Products over cuBLASLt.
//
// cuBLASLt counts in columns: a row-major c[m, n] is its n x m matrix, so it computes c^T = b^T a^T
// with b as its first operand.
#include "ops/kernels/cuda/product.h"

#ifndef WEIR_CUDA_EMULATED

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/cublaslt_library.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr uint64_t kWorkspaceLimit = uint64_t{32} << 20;
constexpr uint64_t kWorkspaceAlignment = 256;
// Operands begin at multiples of 64 bytes, but products of a batch need not.
constexpr uint32_t kOperandAlignment = 16;
// Products that one call computes: some algorithms count them along an axis of the grid that ends
// at 65,535.
constexpr int64_t kBatchMax = 32768;
// Pointers may change from call to call, so that algorithms are chosen for any pointer with this
// alignment.
void* const kAnyPointer = reinterpret_cast<void*>(uintptr_t{kOperandAlignment});

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  return dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// Owns what cuBLASLt makes for one call: the descriptions and the algorithm.
class LtCall {
 public:
  explicit LtCall(const CublasLtLibrary* library) : library_(library) {}
  ~LtCall() {
    for (cublasLtMatrixLayout_t layout : layouts_) {
      if (layout != nullptr) library_->cublasLtMatrixLayoutDestroy(layout);
    }
    if (preference_ != nullptr) library_->cublasLtMatmulPreferenceDestroy(preference_);
    if (description_ != nullptr) library_->cublasLtMatmulDescDestroy(description_);
  }
  LtCall(const LtCall&) = delete;
  LtCall& operator=(const LtCall&) = delete;

  // Chooses an algorithm. The result says whether there is one.
  absl::StatusOr<bool> Prepare(cublasLtHandle_t handle, const ProductSpec& spec,
                               cublasLtEpilogue_t epilogue) {
    handle_ = handle;
    WEIR_RETURN_IF_ERROR(library_->Check(
        library_->cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate"));
    const auto operation = [](Layout layout) {
      return static_cast<int32_t>(layout == Layout::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T);
    };
    WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_TRANSA, operation(spec.b)));
    WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_TRANSB, operation(spec.a)));
    WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue)));
    vector_ = epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB
                  ? Vector::kSums
              : (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 ? Vector::kBias
                                                         : Vector::kNone;
    matrix_ =
        epilogue == CUBLASLT_EPILOGUE_DGELU ? Matrix::kGeluInput
        : epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS
            ? Matrix::kPre
            : Matrix::kNone;
    if (vector_ != Vector::kNone) {
      const DType type = vector_ == Vector::kSums ? DType::kF32 : spec.bias;
      WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, kAnyPointer));
      WEIR_RETURN_IF_ERROR(
          Describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(TypeOf(type))));
    }
    if (matrix_ != Matrix::kNone) {
      WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kAnyPointer));
      WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, spec.n));
      WEIR_RETURN_IF_ERROR(Describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE,
                                    static_cast<int32_t>(TypeOf(spec.result))));
    }
    WEIR_RETURN_IF_ERROR(MakeLayout(0, spec.operands, spec.b, spec.k, spec.n, spec.batch));
    WEIR_RETURN_IF_ERROR(MakeLayout(1, spec.operands, spec.a, spec.m, spec.k, spec.batch));
    WEIR_RETURN_IF_ERROR(MakeLayout(2, spec.result, Layout::kPlain, spec.m, spec.n, spec.batch));
    return Choose();
  }

  // Returns the parts into which the algorithm cuts the sum over k, for more blocks at a time.
  int32_t num_parts() const {
    int32_t parts = 1;
    size_t written = 0;
    const cublasStatus_t status = library_->cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm_, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof(parts), &written);
    return status == CUBLAS_STATUS_SUCCESS && parts > 1 ? parts : 1;
  }

  absl::Status Enqueue(const ProductOperands& operands, void* workspace,
                       device::CudaStream stream) {
    if (vector_ != Vector::kNone) {
      WEIR_RETURN_IF_ERROR(Describe(
          CUBLASLT_MATMUL_DESC_BIAS_POINTER,
          vector_ == Vector::kSums ? static_cast<const void*>(operands.sums) : operands.bias));
    }
    if (matrix_ != Matrix::kNone) {
      WEIR_RETURN_IF_ERROR(Describe(
          CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
          matrix_ == Matrix::kPre ? static_cast<const void*>(operands.pre) : operands.gelu_input));
    }
    const float one = 1, zero = 0;
    const bool adds = operands.addend != nullptr;
    return library_->Check(
        library_->cublasLtMatmul(handle_, description_, &one, operands.b, layouts_[0], operands.a,
                                 layouts_[1], adds ? &one : &zero,
                                 adds ? operands.addend : operands.c, layouts_[2], operands.c,
                                 layouts_[2], &algorithm_, workspace, workspace_bytes_,
                                 static_cast<cudaStream_t>(stream.handle)),
        "cublasLtMatmul");
  }

 private:
  template <typename T>
  absl::Status Describe(cublasLtMatmulDescAttributes_t attribute, T value) {
    return library_->Check(
        library_->cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
  }

  // Describes matrices of rows x columns, row-major unless they are stored transposed.
  absl::Status MakeLayout(size_t i, DType dtype, Layout stored, int64_t rows, int64_t columns,
                          int64_t batch) {
    if (stored == Layout::kTransposed) std::swap(rows, columns);
    WEIR_RETURN_IF_ERROR(
        library_->Check(library_->cublasLtMatrixLayoutCreate(&layouts_[i], TypeOf(dtype),
                                                             static_cast<uint64_t>(columns),
                                                             static_cast<uint64_t>(rows), columns),
                        "cublasLtMatrixLayoutCreate"));
    if (batch == 1) return absl::OkStatus();
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      return library_->Check(
          library_->cublasLtMatrixLayoutSetAttribute(layouts_[i], attribute, &value, sizeof(value)),
          "cublasLtMatrixLayoutSetAttribute");
    };
    WEIR_RETURN_IF_ERROR(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch)));
    return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{rows * columns});
  }

  absl::StatusOr<bool> Choose() {
    WEIR_RETURN_IF_ERROR(library_->Check(library_->cublasLtMatmulPreferenceCreate(&preference_),
                                         "cublasLtMatmulPreferenceCreate"));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return library_->Check(library_->cublasLtMatmulPreferenceSetAttribute(preference_, attribute,
                                                                            &value, sizeof(value)),
                             "cublasLtMatmulPreferenceSetAttribute");
    };
    WEIR_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceLimit));
    // Parts of a sum are stored and added in order, never where they meet: so bits repeat.
    WEIR_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    for (auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      WEIR_RETURN_IF_ERROR(prefer(attribute, alignment_));
    }
    cublasLtMatmulHeuristicResult_t found{};
    int num_found = 0;
    const cublasStatus_t status = library_->cublasLtMatmulAlgoGetHeuristic(
        handle_, description_, layouts_[0], layouts_[1], layouts_[2], layouts_[2], preference_, 1,
        &found, &num_found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
      return false;
    WEIR_RETURN_IF_ERROR(library_->Check(status, "cublasLtMatmulAlgoGetHeuristic"));
    if (num_found == 0 || found.state != CUBLAS_STATUS_SUCCESS) return false;
    algorithm_ = found.algo;
    workspace_bytes_ = found.workspaceSize;
    return true;
  }

  const CublasLtLibrary* const library_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::array<cublasLtMatrixLayout_t, 3> layouts_{};  // of b, a and c
  cublasLtMatmulAlgo_t algorithm_{};
  uint32_t alignment_ = kOperandAlignment;  // in bytes
  size_t workspace_bytes_ = 0;
  enum class Vector : uint8_t { kNone, kBias, kSums } vector_ = Vector::kNone;
  enum class Matrix : uint8_t { kNone, kPre, kGeluInput } matrix_ = Matrix::kNone;
};

// An epilogue of cuBLASLt, and how much of the product it leaves.
struct Candidate {
  cublasLtEpilogue_t epilogue;
  ProductReach reach;
};

// Returns the epilogues to try, the most useful first.
std::vector<Candidate> CandidatesFor(const ProductSpec& spec) {
  std::vector<Candidate> candidates;
  const auto add = [&](cublasLtEpilogue_t with_bias, cublasLtEpilogue_t without,
                       ProductReach reach) {
    candidates.push_back({spec.has_bias ? with_bias : without, reach});
  };
  // The library's tanh form of GELU is good enough for bf16 alone; its aux is the value before the
  // activation, in rows of whole groups of 8. Other rows go without the epilogue whether they keep
  // that value or not, so that the bits are the same.
  if (spec.activation == Activation::kGelu && spec.result == DType::kBF16 && spec.n % 8 == 0) {
    if (!spec.keeps_pre) {
      add(CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU, ProductReach::kAll);
    } else {
      add(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, ProductReach::kAll);
    }
  }
  if (spec.gelu_grad && spec.result == DType::kBF16 && spec.n % 8 == 0)
    candidates.push_back({CUBLASLT_EPILOGUE_DGELU, ProductReach::kAll});
  // The library counts operands the other way round.
  if (spec.sums == SummedOperand::kA)
    candidates.push_back({CUBLASLT_EPILOGUE_BGRADB, ProductReach::kAll});
  if (spec.sums == SummedOperand::kB)
    candidates.push_back({CUBLASLT_EPILOGUE_BGRADA, ProductReach::kAll});
  if (spec.activation == Activation::kRelu && !spec.keeps_pre)
    add(CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU, ProductReach::kAll);
  if (spec.has_bias) candidates.push_back({CUBLASLT_EPILOGUE_BIAS, ProductReach::kBias});
  candidates.push_back({CUBLASLT_EPILOGUE_DEFAULT, ProductReach::kProduct});
  return candidates;
}

// The calls of one product: the products of a batch come in runs of equal length, the last shorter.
class CublasLtPlan final : public ProductPlan {
 public:
  CublasLtPlan(const ProductSpec& spec, const CublasLtLibrary* library)
      : spec_(spec), library_(library) {}

  absl::Status Prepare() {
    WEIR_ASSIGN_OR_RETURN(cublasLtHandle_t handle, library_->Handle());
    for (const Candidate& candidate : CandidatesFor(spec_)) {
      ProductSpec run = spec_;
      run.batch = std::min(spec_.batch, kBatchMax);
      WEIR_ASSIGN_OR_RETURN(bool found, TryRun(handle, run, candidate, &run_));
      run.batch = spec_.batch % kBatchMax;
      if (found && spec_.batch > kBatchMax && run.batch > 0) {
        WEIR_ASSIGN_OR_RETURN(found, TryRun(handle, run, candidate, &last_run_));
      }
      if (!found) continue;
      if (spec_.sums != SummedOperand::kNone && candidate.reach == ProductReach::kAll) {
        WEIR_ASSIGN_OR_RETURN(const bool keeps, KeepsParts(handle));
        if (!keeps) continue;
      }
      reach_ = candidate.reach;
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat(
        "W0567: cuBLASLt has no algorithm for a product of m=", spec_.m, ", n=", spec_.n,
        ", k=", spec_.k, ", batch=", spec_.batch, ". Try the version of CUDA 13"));
  }

  ProductReach reach() const override { return reach_; }

  absl::Status Enqueue(const ProductOperands& operands, void* workspace,
                       device::CudaStream stream) override {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    void* const aligned = reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) /
                                                  kWorkspaceAlignment * kWorkspaceAlignment);
    const PlannedOperands planned{this, aligned, operands};
    if (device::Records(stream, planned)) return absl::OkStatus();
    for (int64_t first = 0; first < spec_.batch; first += kBatchMax) {
      const bool whole = last_run_ == std::nullopt || spec_.batch - first >= kBatchMax;
      ProductOperands at = operands;
      at.a = Advance(operands.a, first * spec_.m * spec_.k, spec_.operands);
      at.b = Advance(operands.b, first * spec_.k * spec_.n, spec_.operands);
      at.c = const_cast<void*>(Advance(operands.c, first * spec_.m * spec_.n, spec_.result));
      WEIR_RETURN_IF_ERROR((whole ? run_ : last_run_)->Enqueue(at, aligned, stream));
    }
    return absl::OkStatus();
  }

 private:
  static const void* Advance(const void* from, int64_t elements, DType dtype) {
    return static_cast<const char*>(from) + elements * SizeOf(dtype);
  }

  absl::StatusOr<bool> TryRun(cublasLtHandle_t handle, const ProductSpec& spec,
                              const Candidate& candidate, std::optional<LtCall>* call) {
    call->emplace(library_);
    return (*call)->Prepare(handle, spec, candidate.epilogue);
  }

  // Returns whether the product has as many parts with its epilogue as without. With fewer, it
  // would leave most of a GPU idle where c is small and k large, which costs more than sums do.
  absl::StatusOr<bool> KeepsParts(cublasLtHandle_t handle) {
    std::optional<LtCall> plain;
    WEIR_ASSIGN_OR_RETURN(
        const bool found,
        TryRun(handle, spec_, {CUBLASLT_EPILOGUE_DEFAULT, ProductReach::kProduct}, &plain));
    return !found || plain->num_parts() <= run_->num_parts();
  }

  const ProductSpec spec_;
  const CublasLtLibrary* const library_;
  ProductReach reach_ = ProductReach::kProduct;
  std::optional<LtCall> run_, last_run_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProductPlan>> MakeProductPlan(const ProductSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const CublasLtLibrary* library, CublasLtLibrary::Open());
  auto plan = std::make_unique<CublasLtPlan>(spec, library);
  WEIR_RETURN_IF_ERROR(plan->Prepare());
  return plan;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE

#endif
