#include "ops/kernels/cuda/optimizer.h"

#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = kPackSize<float>;
constexpr float kNoUpdate = -1;

struct AdamState {
  float weight, first, second;
};

__device__ inline AdamState AdamStep(const AdamWork& work, float scale, float gradient,
                                     AdamState state) {
  const float g = gradient * scale;
  state.weight *= work.decay;
  state.first = fmaf(g - state.first, work.beta1_rest, state.first);
  state.second = fmaf(g * g, work.beta2_rest, state.second * work.beta2);
  const float root = sqrtf(state.second) / work.correction2_root;
  state.weight = fmaf(-(state.first / (root + work.epsilon)), work.step_size, state.weight);
  return state;
}

__global__ void AdamKernel(AdamWork work) {
  const float scale = *work.scale;
  if (scale < 0) return;
  for (int64_t at = GlobalThread() * kPack; at < work.n; at += NumThreads() * kPack) {
    if (at + kPack <= work.n) {
      const Vector<float> g = LoadVector(work.gradient + at);
      Vector<float> w = LoadVector(work.weight + at), m = LoadVector(work.first + at),
                    v = LoadVector(work.second + at);
      WEIR_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const AdamState state = AdamStep(work, scale, g.at[i], {w.at[i], m.at[i], v.at[i]});
        w.at[i] = state.weight;
        m.at[i] = state.first;
        v.at[i] = state.second;
      }
      StoreVector(work.weight + at, w);
      StoreVector(work.first + at, m);
      StoreVector(work.second + at, v);
    } else {
      for (int64_t i = at; i < work.n; ++i) {
        const AdamState state = AdamStep(work, scale, work.gradient[i],
                                         {work.weight[i], work.first[i], work.second[i]});
        work.weight[i] = state.weight;
        work.first[i] = state.first;
        work.second[i] = state.second;
      }
    }
  }
}

__device__ inline void SgdStep(const SgdWork& work, float scale, float gradient, float* weight,
                               float* buffer) {
  const float decayed = fmaf(*weight, work.weight_decay, gradient * scale);
  *buffer = work.kind == Momentum::kLater ? fmaf(*buffer, work.momentum, decayed) : decayed;
  *weight = fmaf(-*buffer, work.rate, *weight);
}

__global__ void SgdKernel(SgdWork work) {
  const float scale = *work.scale;
  if (scale < 0) return;
  const bool reads_buffer = work.kind == Momentum::kLater;
  const bool has_buffer = work.kind != Momentum::kNone;
  for (int64_t at = GlobalThread() * kPack; at < work.n; at += NumThreads() * kPack) {
    if (at + kPack <= work.n) {
      const Vector<float> g = LoadVector(work.gradient + at);
      Vector<float> w = LoadVector(work.weight + at), b = {};
      if (reads_buffer) b = LoadVector(work.buffer + at);
      WEIR_UNROLL
      for (int i = 0; i < kPack; ++i) SgdStep(work, scale, g.at[i], &w.at[i], &b.at[i]);
      StoreVector(work.weight + at, w);
      if (has_buffer) StoreVector(work.buffer + at, b);
    } else {
      for (int64_t i = at; i < work.n; ++i) {
        float b = reads_buffer ? work.buffer[i] : 0.0f;
        SgdStep(work, scale, work.gradient[i], &work.weight[i], &b);
        if (has_buffer) work.buffer[i] = b;
      }
    }
  }
}

template <typename T>
__device__ float SquaresOf(const T* x, int64_t n) {
  float sum = 0;
  ForRow(
      x, n, threadIdx.x, blockDim.x,
      [&](int64_t first) {
        const Vector<T> pack = LoadVector(x + first);
        WEIR_UNROLL
        for (int i = 0; i < kPackSize<T>; ++i) sum += ToFloat(pack.at[i]) * ToFloat(pack.at[i]);
      },
      [&](int64_t i) { sum += ToFloat(x[i]) * ToFloat(x[i]); });
  return sum;
}

__global__ void SquaresKernel(SquaresWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t p = blockIdx.x; p < work.num_pieces; p += gridDim.x) {
    const int64_t piece = work.first_piece + p;
    int t = work.num_tensors - 1;
    while (work.tensors[t].first_piece > piece) --t;
    const SquaresWork::Tensor& tensor = work.tensors[t];
    const int64_t begin = (piece - tensor.first_piece) * kSquaresPiece;
    const int64_t n = tensor.n - begin < kSquaresPiece ? tensor.n - begin : kSquaresPiece;
    float sum = tensor.dtype == DType::kBF16
                    ? SquaresOf(static_cast<const Bf16*>(tensor.data) + begin, n)
                    : SquaresOf(static_cast<const float*>(tensor.data) + begin, n);
    sum = BlockSum(sum, scratch);
    if (threadIdx.x == 0) work.partials[piece] = sum;
  }
}

__global__ void TotalKernel(const float* partials, int64_t n, float* total) {
  WEIR_SHARED(double, scratch);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += partials[i];
  sum = BlockReduce(sum, scratch, Plus());
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
}

__global__ void ClipScaleKernel(ClipScaleWork work) {
  float norm = sqrtf(*work.total);
  const bool finite = norm < Infinity();  // a NaN is not
  norm *= work.first_scale;
  float scale = 1;
  if (work.clip_norm > 0) {
    scale = work.clip_norm / (norm + 1e-6f);
    if (scale > 1) scale = 1;  // a NaN stays
  }
  scale *= work.first_scale;
  const bool was_stopped = !work.is_first && *work.stopped != 0;
  const bool stops = work.leaves_out && (!finite || was_stopped);
  *work.stopped = stops ? work.stays : was_stopped;
  *work.scale = stops ? kNoUpdate : scale;
  if (work.norm != nullptr) *work.norm = norm;
}

}  // namespace

void LaunchAdam(const AdamWork& work, device::CudaStream stream) {
  if (work.n == 0) return;
  Launch(stream, &AdamKernel, dim3(NumBlocks(work.n, kThreads * kPack)), dim3(kThreads), 0, work);
}

void LaunchSgd(const SgdWork& work, device::CudaStream stream) {
  if (work.n == 0) return;
  Launch(stream, &SgdKernel, dim3(NumBlocks(work.n, kThreads * kPack)), dim3(kThreads), 0, work);
}

void LaunchSquares(const SquaresWork& work, device::CudaStream stream) {
  if (work.num_pieces == 0) return;
  Launch(stream, &SquaresKernel, dim3(NumBlocks(work.num_pieces, 1)), dim3(kThreads),
         kBlockScratch * sizeof(float), work);
}

void LaunchTotal(const float* partials, int64_t n, float* total, device::CudaStream stream) {
  Launch(stream, &TotalKernel, dim3(1), dim3(ThreadsOfRow(n, 4, kBlockThreadsMax)),
         kBlockScratch * sizeof(double), partials, n, total);
}

void LaunchClipScale(const ClipScaleWork& work, device::CudaStream stream) {
  Launch(stream, &ClipScaleKernel, dim3(1), dim3(1), 0, work);
}

#ifdef WEIR_CUDA_EMULATED
int32_t* NewFlag() { return new int32_t; }
void FreeFlag(int32_t* flag) { delete flag; }
#else
int32_t* NewFlag() {
  void* flag = nullptr;
  return cudaMalloc(&flag, sizeof(int32_t)) == cudaSuccess ? static_cast<int32_t*>(flag) : nullptr;
}
void FreeFlag(int32_t* flag) { cudaFree(flag); }
#endif

}  // namespace weir::kernels::WEIR_CUDA_SPACE
