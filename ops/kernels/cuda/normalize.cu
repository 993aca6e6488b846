#include "ops/kernels/cuda/normalize.h"

#include "ops/kernels/cuda/axis_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

__device__ inline float At(const Statistic& statistic, int64_t i) {
  return RealAt(statistic.dtype, statistic.data, i);
}

__device__ inline float RootAt(const Statistic& variance, float epsilon, int64_t i) {
  return 1.0f / sqrtf(At(variance, i) + epsilon);
}

// The terms of sums over x alone share OfX.
template <typename T>
struct OfX {
  static constexpr int kSums = 1;
  static constexpr int kPack = kPackSize<T>;
  template <int N>
  using Values = Pack<T, N>;

  template <int N>
  __device__ Pack<T, N> Load(int64_t element) const {
    return *reinterpret_cast<const Pack<T, N>*>(x + element);
  }
  __device__ void Start(float* sum) const { *sum = 0; }
  __device__ void Merge(const float* other, float* sum) const { *sum += *other; }

  const T* x;
};

template <typename T>
struct VarianceTerm : OfX<T> {
  template <int N>
  __device__ void Add(const Pack<T, N>& xs, int i, int64_t s, float* sum) const {
    const float deviation = ToFloat(xs.at[i]) - At(work.mean, s);
    *sum += deviation * deviation;
  }
  __device__ void Finish(int64_t s, const float* sum) const {
    work.variance[s] = *sum / work.shape.count;
  }

  VarianceWork work;
};

template <typename T>
struct VarianceGradTerm : OfX<T> {
  template <int N>
  __device__ void Add(const Pack<T, N>& xs, int i, int64_t s, float* sum) const {
    *sum += ToFloat(xs.at[i]) - At(work.mean, s);
  }
  __device__ void Finish(int64_t s, const float* sum) const {
    work.dmean[s] = -(2.0f / work.shape.count) * At(work.dvariance, s) * *sum;
  }

  VarianceGradWork work;
};

// sums[0] is of dy, sums[1] of dy (x - mean).
template <typename T>
struct NormalizeGradTerm {
  static constexpr int kSums = 2;
  static constexpr int kPack = kPackSize<T>;
  template <int N>
  struct Values {
    Pack<T, N> x, dy;
  };

  template <int N>
  __device__ Values<N> Load(int64_t element) const {
    return {*reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(work.x) + element),
            *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(work.dy) + element)};
  }
  __device__ void Start(float* sums) const { sums[0] = sums[1] = 0; }
  template <int N>
  __device__ void Add(const Values<N>& values, int i, int64_t s, float* sums) const {
    const float dy = ToFloat(values.dy.at[i]);
    sums[0] += dy;
    sums[1] += dy * (ToFloat(values.x.at[i]) - At(work.mean, s));
  }
  __device__ void Merge(const float* other, float* sums) const {
    sums[0] += other[0];
    sums[1] += other[1];
  }
  __device__ void Finish(int64_t s, const float* sums) const {
    const float root = RootAt(work.variance, work.shape.epsilon, s);
    const float factor = root * (work.gamma.data == nullptr ? 1.0f : At(work.gamma, s));
    const float dgamma = sums[1] * root;
    work.dbeta[s] = sums[0];
    work.dgamma[s] = dgamma;
    work.dmean[s] = -factor * sums[0];
    work.dvariance[s] = -0.5f * factor * root * dgamma;
  }

  NormalizeGradWork work;
};

// Maps from one tensor to another: `Function` gives a result from an element and its statistic.
template <typename T, typename Function>
struct ElementMap {
  struct State {
    Vector<T> from, to;
  };

  __device__ State Begin(int64_t first, int n) const { return {LoadUpTo(from + first, n), {}}; }
  __device__ void Each(State* state, int i, int64_t s) const {
    Store(&state->to.at[i], function(ToFloat(state->from.at[i]), s));
  }
  __device__ void End(const State& state, int64_t first, int n) const {
    StoreUpTo(to + first, state.to, n);
  }

  const T* from;
  T* to;
  Function function;
};

struct VarianceGradOf {
  __device__ float operator()(float x, int64_t s) const {
    return (x - At(mean, s)) * factor * At(dvariance, s);
  }
  Statistic mean, dvariance;
  float factor;
};

struct NormalOf {
  __device__ float operator()(float x, int64_t s) const {
    float factor = RootAt(variance, epsilon, s);
    if (gamma.data != nullptr) factor *= At(gamma, s);
    return (x - At(mean, s)) * factor + (beta.data == nullptr ? 0.0f : At(beta, s));
  }
  Statistic mean, variance, gamma, beta;
  float epsilon;
};

struct NormalGradOf {
  __device__ float operator()(float dy, int64_t s) const {
    return dy * (RootAt(variance, epsilon, s) * (gamma.data == nullptr ? 1.0f : At(gamma, s)));
  }
  Statistic variance, gamma;
  float epsilon;
};

template <typename T, typename Function>
void LaunchElements(const NormalizeShape& shape, const void* from, void* to,
                    const Function& function, device::CudaStream stream) {
  const ElementMap<T, Function> map{static_cast<const T*>(from), static_cast<T*>(to), function};
  LaunchMap<ElementMap<T, Function>, kPackSize<T>>(shape.walk, map, stream);
}

template <typename Function>
void LaunchElements(const NormalizeShape& shape, const void* from, void* to,
                    const Function& function, device::CudaStream stream) {
  WithReal(shape.dtype,
           [&]<typename T>(T*) { LaunchElements<T>(shape, from, to, function, stream); });
}

template <template <typename> typename Term, typename Work>
void LaunchSumsOfX(const Work& work, device::CudaStream stream) {
  const NormalizeShape& shape = work.shape;
  WithReal(shape.dtype, [&]<typename T>(T*) {
    const Term<T> term{{static_cast<const T*>(work.x)}, work};
    LaunchReduce(shape.walk, term, shape.partials, stream);
  });
}

__global__ void ZeroKernel(float* y, int64_t n) {
  for (int64_t i = GlobalThread(); i < n; i += NumThreads()) y[i] = 0;
}

// Sets a statistic of an empty tensor to 0.
void LaunchZero(const NormalizeShape& shape, float* statistic, device::CudaStream stream) {
  constexpr int kThreads = 256;
  const int64_t n = shape.walk.num_results();
  if (n == 0) return;
  Launch(stream, &ZeroKernel, dim3(NumBlocks(n, kThreads)), dim3(kThreads), 0, statistic, n);
}

}  // namespace

int64_t NormalizePartials(const NormalizeShape& shape, int num_sums) {
  if (shape.empty) return 0;
  return ReducePartials(shape.walk, num_sums, PackSizeOf(shape.dtype));
}

void LaunchVariance(const VarianceWork& work, device::CudaStream stream) {
  if (work.shape.empty) return LaunchZero(work.shape, work.variance, stream);
  LaunchSumsOfX<VarianceTerm>(work, stream);
}

void LaunchVarianceGrad(const VarianceGradWork& work, device::CudaStream stream) {
  if (work.shape.empty) return LaunchZero(work.shape, work.dmean, stream);
  // The sums come first, because dx may be x.
  LaunchSumsOfX<VarianceGradTerm>(work, stream);
  const VarianceGradOf function{work.mean, work.dvariance, 2.0f / work.shape.count};
  LaunchElements(work.shape, work.x, work.dx, function, stream);
}

void LaunchNormalize(const NormalizeWork& work, device::CudaStream stream) {
  const NormalOf function{work.mean, work.variance, work.gamma, work.beta, work.shape.epsilon};
  if (!work.shape.empty) LaunchElements(work.shape, work.x, work.y, function, stream);
}

void LaunchNormalizeGrad(const NormalizeGradWork& work, device::CudaStream stream) {
  const NormalizeShape& shape = work.shape;
  if (shape.empty) {
    for (float* sums : {work.dmean, work.dvariance, work.dgamma, work.dbeta})
      LaunchZero(shape, sums, stream);
    return;
  }
  // The sums come first, because dx may be x or dy.
  WithReal(shape.dtype, [&]<typename T>(T*) {
    LaunchReduce(shape.walk, NormalizeGradTerm<T>{work}, shape.partials, stream);
  });
  const NormalGradOf function{work.variance, work.gamma, shape.epsilon};
  LaunchElements(shape, work.dy, work.dx, function, stream);
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
