#include "ops/kernels/cuda/reduce.h"

#include "ops/kernels/cuda/axis_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename T, Reduction kReduction>
struct ReduceTerm {
  static constexpr int kSums = 1;
  static constexpr int kPack = kPackSize<T>;
  template <int N>
  using Values = Pack<T, N>;

  template <int N>
  __device__ Pack<T, N> Load(int64_t element) const {
    return *reinterpret_cast<const Pack<T, N>*>(x + element);
  }
  __device__ void Start(float* sum) const {
    *sum = kReduction == Reduction::kSum ? 0.0f : -Infinity();
  }
  template <int N>
  __device__ void Add(const Pack<T, N>& values, int i, int64_t, float* sum) const {
    const float value = ToFloat(values.at[i]);
    Merge(&value, sum);
  }
  __device__ void Merge(const float* other, float* sum) const {
    *sum = kReduction == Reduction::kSum ? *sum + *other : MaxOrNaN(*sum, *other);
  }
  __device__ void Finish(int64_t result, const float* sum) const {
    StoreAt(y_dtype, y, result, *sum * factor);
  }

  const T* x;
  DType y_dtype;
  void* y;
  float factor;
};

__global__ void FillKernel(DType dtype, void* y, int64_t n, float value) {
  for (int64_t i = GlobalThread(); i < n; i += NumThreads()) StoreAt(dtype, y, i, value);
}

template <typename T, Reduction kReduction>
void LaunchReductionOf(const ReduceWork& work, device::CudaStream stream) {
  constexpr int kThreads = 256;
  if (work.num_y == 0) return;
  if (work.num_x == 0) {
    const float neutral = kReduction == Reduction::kSum ? 0.0f : -HUGE_VALF;
    Launch(stream, &FillKernel, dim3(NumBlocks(work.num_y, kThreads)), dim3(kThreads), 0,
           work.y_dtype, work.y, work.num_y, neutral * work.factor);
    return;
  }
  const ReduceTerm<T, kReduction> term{static_cast<const T*>(work.x), work.y_dtype, work.y,
                                       work.factor};
  LaunchReduce(work.walk, term, work.partials, stream);
}

template <typename T>
void LaunchReductionOf(const ReduceWork& work, device::CudaStream stream) {
  work.reduction == Reduction::kSum ? LaunchReductionOf<T, Reduction::kSum>(work, stream)
                                    : LaunchReductionOf<T, Reduction::kMax>(work, stream);
}

// kMasked: dx is 0 unless x equals y.
template <typename T, bool kMasked>
struct ExpandMap {
  struct State {
    Vector<T> x, dx;
  };

  __device__ State Begin(int64_t first, int n) const {
    State state = {};
    if constexpr (kMasked) state.x = LoadUpTo(x + first, n);
    return state;
  }
  __device__ void Each(State* state, int i, int64_t result) const {
    T value = dy[result];
    if constexpr (kMasked) {
      if (ToFloat(state->x.at[i]) != ToFloat(y[result])) value = T{};
    }
    state->dx.at[i] = value;
  }
  __device__ void End(const State& state, int64_t first, int n) const {
    StoreUpTo(dx + first, state.dx, n);
  }

  const T* x;
  const T* y;
  const T* dy;
  T* dx;
};

template <typename T>
void LaunchExpandOf(const ExpandWork& work, device::CudaStream stream) {
  if (work.num_dx == 0) return;
  const auto* x = static_cast<const T*>(work.x);
  const auto* y = static_cast<const T*>(work.y);
  const auto* dy = static_cast<const T*>(work.dy);
  auto* dx = static_cast<T*>(work.dx);
  if (x == nullptr) {
    LaunchMap<ExpandMap<T, false>, kPackSize<T>>(work.walk, {x, y, dy, dx}, stream);
  } else {
    LaunchMap<ExpandMap<T, true>, kPackSize<T>>(work.walk, {x, y, dy, dx}, stream);
  }
}

}  // namespace

int64_t ReduceWorkspace(const ReduceWork& work) {
  if (work.num_x == 0) return 0;
  return ReducePartials(work.walk, 1, PackSizeOf(work.x_dtype)) *
         static_cast<int64_t>(sizeof(float));
}

void LaunchReduction(const ReduceWork& work, device::CudaStream stream) {
  WithReal(work.x_dtype, [&]<typename T>(T*) { LaunchReductionOf<T>(work, stream); });
}

void LaunchExpand(const ExpandWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchExpandOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
