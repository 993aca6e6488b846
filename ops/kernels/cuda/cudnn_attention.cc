// The one file that includes cuDNN's frontend, which takes a minute to compile.
#include "ops/kernels/cuda/cudnn_attention.h"

#include <algorithm>

#include "absl/status/status.h"

#if defined(WEIR_CUDNN_FRONTEND) && !defined(WEIR_CUDA_EMULATED)
#define WEIR_WITH_CUDNN
#endif

#ifdef WEIR_WITH_CUDNN
#include <cuda_runtime_api.h>

#include <array>
#include <exception>
#include <map>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "cudnn_frontend.h"
#include "ops/kernels/cuda/shared_library.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // of libcudnn, which this file opens
}
#endif

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kWidthMax = 128;
constexpr int64_t kAlignment = 256;  // of a workspace, in bytes
// Gradients that repeat their bits keep a number for each query and key. Beyond this size, the
// kernels of this folder do the work instead.
constexpr int64_t kGradWorkspaceMax = int64_t{6} << 30;

int64_t RoundedUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

int64_t Queries(const AttentionSizes& sizes) { return sizes.batch * sizes.heads * sizes.length; }

}  // namespace

bool CudnnMayAttend(const AttentionSizes& sizes) {
#ifdef WEIR_WITH_CUDNN
  const bool has_elements = Queries(sizes) > 0 && sizes.keys > 0 && sizes.width > 0;
  return has_elements && sizes.dtype == DType::kBF16 && !sizes.has_mask && sizes.window == 0 &&
         sizes.width % 8 == 0 && sizes.width <= kWidthMax;
#else
  return false;
#endif
}

bool CudnnMayAttendGrad(const AttentionSizes& sizes) {
  return CudnnMayAttend(sizes) && CudnnGradWorkspace(sizes) <= kGradWorkspaceMax;
}

int64_t CudnnWorkspace(const AttentionSizes& sizes) {
  return 4 * kMiB + 4 * Queries(sizes) * SizeOf(DType::kF32);
}

int64_t CudnnGradWorkspace(const AttentionSizes& sizes) {
  const int64_t heads = sizes.batch * sizes.heads;
  // A gradient of each score in bf16, D of each query, and the gradients of q, and of k and v for
  // each query head.
  const int64_t scores = RoundedUp(sizes.length, 128) * RoundedUp(sizes.keys, 128);
  return 4 * kMiB + heads * scores * SizeOf(DType::kBF16) +
         4 * Queries(sizes) * SizeOf(DType::kF32) +
         heads * (sizes.length + 2 * sizes.keys) * sizes.width * SizeOf(DType::kF32);
}

#ifdef WEIR_WITH_CUDNN

namespace {

namespace fe = cudnn_frontend;

constexpr char kFile[] = "libcudnn.so.9";
constexpr char kRuntime[] = "libcudart.so.13";

absl::Status Refused(const std::string& what, const std::string& why) {
  return absl::InternalError(absl::StrCat("W0568: cuDNN refuses ", what, ": ", why));
}

absl::Status OpenOnce() {
  // The frontend looks for the library of the CUDA runtime by its name alone, which finds it if it
  // is open already.
  WEIR_RETURN_IF_ERROR(OpenSharedLibrary(kRuntime, "", {"cu13/lib", "cuda_runtime/lib"}).status());
  WEIR_ASSIGN_OR_RETURN(fe::cudnn_dlhandle,
                        OpenSharedLibrary(kFile, "libcudnn.so.8", {"cudnn/lib", "cu13/lib"}));
  return absl::OkStatus();
}

// The frontend calls cuDNN as soon as a graph gets an operation, so this comes first.
absl::Status OpenCudnn() {
  static const auto* opened = new absl::Status(OpenOnce());
  return *opened;
}

// The handles of this process, one for each device. A handle serves one thread at a time.
struct Handles {
  Mutex mutex;
  std::map<int, cudnnHandle_t> of_device ABSL_GUARDED_BY(mutex);
};

Handles& HandlesOfProcess() {
  static auto* handles = new Handles;
  return *handles;
}

// Calls use(handle) with the handle of the calling thread's device, in its stream.
// Precondition: OpenCudnn has succeeded.
template <typename Use>
absl::Status WithHandle(device::CudaStream stream, const Use& use) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess)
    return Refused("a handle", cudaGetErrorString(error));
  Handles& handles = HandlesOfProcess();
  MutexLock lock(&handles.mutex);
  try {
    cudnnHandle_t& handle = handles.of_device[device];
    if (handle == nullptr) {
      if (const cudnnStatus_t status = fe::detail::create_handle(&handle);
          status != CUDNN_STATUS_SUCCESS)
        return Refused("a handle", fe::detail::get_error_string(status));
    }
    if (const cudnnStatus_t status =
            fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream.handle));
        status != CUDNN_STATUS_SUCCESS)
      return Refused("a stream", fe::detail::get_error_string(status));
    return use(handle);
  } catch (const std::exception& error) {
    return Refused("a call", error.what());
  }
}

// The tensors of a graph, by the numbers that the graph knows them by.
enum Tensor : int64_t { kQ = 1, kK, kV, kO, kLse, kDO, kDQ, kDK, kDV };

using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

// A graph of one operation, and the pointers of its tensors.
class Graph {
 public:
  explicit Graph(const AttentionSizes& sizes) : sizes_(sizes) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  fe::graph::Graph& graph() { return graph_; }
  bool causal() const { return sizes_.causal; }
  float scale() const { return sizes_.scale; }

  TensorPointer Input(Tensor tensor) {
    fe::graph::Tensor_attributes attributes;
    Describe(tensor, attributes);
    return graph_.tensor(attributes);
  }
  void Output(Tensor tensor, const TensorPointer& result) {
    result->set_output(true);
    Describe(tensor, *result);
  }

  absl::Status Build(int64_t workspace_bytes) {
    return WithHandle({}, [&](cudnnHandle_t handle) -> absl::Status {
      fe::error_t built = graph_.build(handle, {fe::HeurMode_t::A});
      if (built.is_bad()) return Refused("a shape", built.get_message());
      const int64_t wanted = graph_.get_workspace_size();
      if (wanted + kAlignment <= workspace_bytes) return absl::OkStatus();
      return Refused("its workspace", absl::StrCat("it wants ", wanted, " bytes, and there are ",
                                                   workspace_bytes - kAlignment));
    });
  }

  void Set(Tensor tensor, const void* address) { pointers_[tensor] = const_cast<void*>(address); }

  absl::Status Enqueue(void* workspace, device::CudaStream stream) {
    void* const aligned = reinterpret_cast<void*>(
        RoundedUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(workspace)), kAlignment));
    struct {
      const Graph* graph;
      void* workspace;
      std::array<void*, kDV + 1> tensors;
    } call{this, aligned, {}};
    for (const auto& [tensor, address] : pointers_) call.tensors[tensor] = address;
    if (device::Records(stream, call)) return absl::OkStatus();
    return WithHandle(stream, [&](cudnnHandle_t handle) -> absl::Status {
      fe::error_t done = graph_.execute(handle, pointers_, aligned);
      return done.is_bad() ? Refused("to run", done.get_message()) : absl::OkStatus();
    });
  }

 private:
  template <typename Attributes>
  void Describe(Tensor tensor, Attributes& attributes) const {
    const AttentionSizes& s = sizes_;
    attributes.set_uid(tensor);
    if (tensor == kLse) {
      attributes.set_dim({s.batch, s.heads, s.length, 1})
          .set_stride({s.heads * s.length, s.length, 1, 1})
          .set_data_type(fe::DataType_t::FLOAT);
      return;
    }
    const bool of_keys = tensor == kK || tensor == kV || tensor == kDK || tensor == kDV;
    const int64_t length = of_keys ? s.keys : s.length, heads = of_keys ? s.groups : s.heads;
    attributes.set_dim({s.batch, heads, length, s.width})
        .set_stride({length * heads * s.width, s.width, heads * s.width, 1})
        .set_data_type(fe::DataType_t::BFLOAT16);
  }

  const AttentionSizes sizes_;
  fe::graph::Graph graph_;
  std::unordered_map<int64_t, void*> pointers_;
};

class Forward final : public CudnnAttention {
 public:
  Forward(const AttentionSizes& sizes, KeepsLse lse) : graph_(sizes), lse_(lse) {}

  absl::Status Prepare(int64_t workspace_bytes) {
    const TensorPointer q = graph_.Input(kQ), k = graph_.Input(kK), v = graph_.Input(kV);
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(lse_ == KeepsLse::kYes)
                       .set_attn_scale(graph_.scale())
                       .set_causal_mask(graph_.causal());
    auto [o, lse] = graph_.graph().sdpa(q, k, v, options);
    graph_.Output(kO, o);
    if (lse_ == KeepsLse::kYes) graph_.Output(kLse, lse);
    return graph_.Build(workspace_bytes);
  }

  absl::Status Enqueue(const AttentionWork& work, void* workspace,
                       device::CudaStream stream) override {
    graph_.Set(kQ, work.q);
    graph_.Set(kK, work.k);
    graph_.Set(kV, work.v);
    graph_.Set(kO, work.o);
    if (lse_ == KeepsLse::kYes) graph_.Set(kLse, work.lse);
    return graph_.Enqueue(workspace, stream);
  }

 private:
  Graph graph_;
  const KeepsLse lse_;
};

class Backward final : public CudnnAttentionGrad {
 public:
  explicit Backward(const AttentionSizes& sizes) : graph_(sizes) {}

  absl::Status Prepare(int64_t workspace_bytes) {
    const TensorPointer q = graph_.Input(kQ), k = graph_.Input(kK), v = graph_.Input(kV);
    const TensorPointer o = graph_.Input(kO), d_o = graph_.Input(kDO), lse = graph_.Input(kLse);
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_grad")
                       .set_attn_scale(graph_.scale())
                       .set_causal_mask(graph_.causal())
                       .set_deterministic_algorithm(true);
    auto [dq, dk, dv] = graph_.graph().sdpa_backward(q, k, v, o, d_o, lse, options);
    graph_.Output(kDQ, dq);
    graph_.Output(kDK, dk);
    graph_.Output(kDV, dv);
    return graph_.Build(workspace_bytes);
  }

  absl::Status Enqueue(const AttentionGradWork& work, void* workspace,
                       device::CudaStream stream) override {
    graph_.Set(kQ, work.q);
    graph_.Set(kK, work.k);
    graph_.Set(kV, work.v);
    graph_.Set(kO, work.o);
    graph_.Set(kLse, work.lse);
    graph_.Set(kDO, work.d_o);
    graph_.Set(kDQ, work.dq);
    graph_.Set(kDK, work.dk);
    graph_.Set(kDV, work.dv);
    return graph_.Enqueue(workspace, stream);
  }

 private:
  Graph graph_;
};

// Exceptions of the frontend end here.
template <typename Made>
absl::StatusOr<std::unique_ptr<Made>> Prepared(std::unique_ptr<Made> made,
                                               int64_t workspace_bytes) {
  WEIR_RETURN_IF_ERROR(OpenCudnn());
  try {
    WEIR_RETURN_IF_ERROR(made->Prepare(workspace_bytes));
  } catch (const std::exception& error) {
    return Refused("a shape", error.what());
  }
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(const AttentionSizes& sizes,
                                                                   KeepsLse lse) {
  return Prepared(std::make_unique<Forward>(sizes, lse), CudnnWorkspace(sizes));
}

absl::StatusOr<std::unique_ptr<CudnnAttentionGrad>> MakeCudnnAttentionGrad(
    const AttentionSizes& sizes) {
  return Prepared(std::make_unique<Backward>(sizes), CudnnGradWorkspace(sizes));
}

#else

absl::StatusOr<std::unique_ptr<CudnnAttention>> MakeCudnnAttention(const AttentionSizes&,
                                                                   KeepsLse) {
  return absl::UnimplementedError("this program is built without cuDNN's frontend");
}

absl::StatusOr<std::unique_ptr<CudnnAttentionGrad>> MakeCudnnAttentionGrad(const AttentionSizes&) {
  return absl::UnimplementedError("this program is built without cuDNN's frontend");
}

#endif

}  // namespace weir::kernels::WEIR_CUDA_SPACE
