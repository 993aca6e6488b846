#include "ops/kernels/cuda/optimizer.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "runtime/base/loss_scale.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = kPackSize<float>;

// A block updates this many elements of one tensor.
constexpr int kPacksOfThread = 4;
constexpr int64_t kElementsOfBlock = int64_t{kThreads} * kPack * kPacksOfThread;

// Returns the tensor of a block.
template <typename Work>
__device__ inline int TensorOf(const Work& work, int64_t block) {
  int first = 0, end = work.num_tensors;
  while (end - first > 1) {
    const int middle = (first + end) / 2;
    if (work.tensors[middle].first_block <= block) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

// Calls vector(i) for packs of elements from i on, and single(i) for the other elements, of the
// part of this thread in block `block` of a tensor of n elements.
template <typename Vectors, typename Singles>
__device__ inline void ForPart(int64_t block, int64_t n, Vectors vector, Singles single) {
  WEIR_UNROLL
  for (int p = 0; p < kPacksOfThread; ++p) {
    const int64_t at =
        block * kElementsOfBlock + (static_cast<int64_t>(p) * kThreads + threadIdx.x) * kPack;
    if (at + kPack <= n) {
      vector(at);
    } else {
      for (int64_t i = at; i < n; ++i) single(i);
    }
  }
}

struct AdamState {
  float weight, first, second;
};

__device__ inline AdamState AdamStep(const AdamNumbers& step, float scale, float gradient,
                                     AdamState state) {
  const float g = gradient * scale;
  state.weight *= step.decay;
  state.first = fmaf(g - state.first, step.beta1_rest, state.first);
  state.second = fmaf(g * g, step.beta2_rest, state.second * step.beta2);
  const float root = sqrtf(state.second) / step.correction2_root;
  state.weight = fmaf(-(state.first / (root + step.epsilon)), step.step_size, state.weight);
  return state;
}

__global__ void AdamKernel(AdamWork work) {
  const float scale = *work.scale;
  if (scale < 0) return;
  const AdamWork::Tensor& of = work.tensors[TensorOf(work, blockIdx.x)];
  const AdamNumbers step = of.numbers;
  ForPart(
      blockIdx.x - of.first_block, of.n,
      [&](int64_t at) {
        const Vector<float> g = LoadVector(of.gradient + at);
        Vector<float> w = LoadVector(of.weight + at), m = LoadVector(of.first + at),
                      v = LoadVector(of.second + at);
        WEIR_UNROLL
        for (int i = 0; i < kPack; ++i) {
          const AdamState state = AdamStep(step, scale, g.at[i], {w.at[i], m.at[i], v.at[i]});
          w.at[i] = state.weight;
          m.at[i] = state.first;
          v.at[i] = state.second;
        }
        StoreVector(of.weight + at, w);
        StoreVector(of.first + at, m);
        StoreVector(of.second + at, v);
      },
      [&](int64_t i) {
        const AdamState state =
            AdamStep(step, scale, of.gradient[i], {of.weight[i], of.first[i], of.second[i]});
        of.weight[i] = state.weight;
        of.first[i] = state.first;
        of.second[i] = state.second;
      });
}

__device__ inline void SgdStep(const SgdNumbers& step, float scale, float gradient, float* weight,
                               float* buffer) {
  const float decayed = fmaf(*weight, step.weight_decay, gradient * scale);
  *buffer = step.kind == Momentum::kLater ? fmaf(*buffer, step.momentum, decayed) : decayed;
  *weight = fmaf(-*buffer, step.rate, *weight);
}

__global__ void SgdKernel(SgdWork work) {
  const float scale = *work.scale;
  if (scale < 0) return;
  const SgdWork::Tensor& of = work.tensors[TensorOf(work, blockIdx.x)];
  const SgdNumbers step = of.numbers;
  const bool reads_buffer = step.kind == Momentum::kLater;
  const bool has_buffer = step.kind != Momentum::kNone;
  ForPart(
      blockIdx.x - of.first_block, of.n,
      [&](int64_t at) {
        const Vector<float> g = LoadVector(of.gradient + at);
        Vector<float> w = LoadVector(of.weight + at), b = {};
        if (reads_buffer) b = LoadVector(of.buffer + at);
        WEIR_UNROLL
        for (int i = 0; i < kPack; ++i) SgdStep(step, scale, g.at[i], &w.at[i], &b.at[i]);
        StoreVector(of.weight + at, w);
        if (has_buffer) StoreVector(of.buffer + at, b);
      },
      [&](int64_t i) {
        float b = reads_buffer ? of.buffer[i] : 0.0f;
        SgdStep(step, scale, of.gradient[i], &of.weight[i], &b);
        if (has_buffer) of.buffer[i] = b;
      });
}

// Numbers the blocks of the tensors and returns their count. Tensors without elements go.
template <typename Work>
int64_t NumberBlocks(Work* work) {
  int64_t blocks = 0;
  int kept = 0;
  for (int t = 0; t < work->num_tensors; ++t) {
    if (work->tensors[t].n == 0) continue;
    work->tensors[kept] = work->tensors[t];
    work->tensors[kept++].first_block = blocks;
    blocks += (work->tensors[t].n + kElementsOfBlock - 1) / kElementsOfBlock;
  }
  work->num_tensors = kept;
  return blocks;
}

// Returns the threads that add n partial sums.
__host__ __device__ inline int TotalThreads(int64_t n) {
  const int64_t threads = (n + 4 * kWarp - 1) / (4 * kWarp) * kWarp;
  return static_cast<int>(threads < kWarp              ? kWarp
                          : threads > kBlockThreadsMax ? kBlockThreadsMax
                                                       : threads);
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

__device__ inline float SquaresOf(DType dtype, const void* data, int64_t begin, int64_t n) {
  if (dtype == DType::kBF16) return SquaresOf(static_cast<const Bf16*>(data) + begin, n);
  if (dtype == DType::kF16) return SquaresOf(static_cast<const F16*>(data) + begin, n);
  return SquaresOf(static_cast<const float*>(data) + begin, n);
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
    const float sum = BlockSum(SquaresOf(tensor.dtype, tensor.data, begin, n), scratch);
    if (threadIdx.x == 0) work.partials[piece] = sum;
  }
}

// Returns the sum of the partial sums [begin, end) for all threads of the block. The first
// `threads` of them add partial sums; those beyond would add nothing but zeros.
__device__ inline float TotalOf(const float* partials, int64_t begin, int64_t end, int threads,
                                double* scratch) {
  double sum = 0;
  if (static_cast<int>(threadIdx.x) < threads) {
    for (int64_t i = begin + threadIdx.x; i < end; i += threads) sum += partials[i];
  }
  return static_cast<float>(BlockReduce(sum, scratch, Plus()));
}

__global__ void TotalKernel(const float* partials, int64_t n, float* total) {
  WEIR_SHARED(double, scratch);
  const float sum = TotalOf(partials, 0, n, static_cast<int>(blockDim.x), scratch);
  if (threadIdx.x == 0) *total = sum;
}

// A block for each tensor. As many threads add as those of TotalKernel for as many partial sums, so
// that the bits are the same.
__global__ void TotalsKernel(TotalsWork work) {
  WEIR_SHARED(double, scratch);
  const int t = static_cast<int>(blockIdx.x);
  const int64_t begin = t == 0 ? 0 : work.end_piece[t - 1];
  const int64_t end = work.end_piece[t];
  const float sum = TotalOf(work.partials, begin, end, TotalThreads(end - begin), scratch);
  if (threadIdx.x == 0) work.totals[t] = sum;
}

__global__ void AddTotalsKernel(TotalsWork work) {
  float sum = work.totals[0];
  for (int t = 1; t < work.num_tensors; ++t) sum += work.totals[t];
  *work.total = sum;
}

__global__ void ClipScaleKernel(ClipScaleWork work) {
  float norm = sqrtf(*work.total);
  const bool finite = norm < Infinity();  // a NaN is not
  const float factor = work.factor != nullptr ? *work.factor : work.loss_scale;
  const bool has_loss = work.loss != nullptr;
  const bool loss_is_finite =
      !has_loss || (*work.loss < Infinity() && *work.loss > -Infinity());  // a NaN is not
  // Gradients that overflow because of the factor are no error.
  const bool overflows = has_loss && loss_is_finite && factor >= kOverflowScaleLeast;
  norm /= factor;
  norm *= work.first_scale;
  float scale = 1;
  if (work.clip_norm > 0) {
    scale = work.clip_norm / (norm + 1e-6f);
    if (scale > 1) scale = 1;  // a NaN stays
  }
  scale *= work.first_scale;
  scale /= factor;
  const bool was_stopped = !work.is_first && *work.stopped != 0;
  const bool stopped = was_stopped || (work.stays && (!loss_is_finite || (!finite && !overflows)));
  *work.stopped = stopped;
  if (stopped || (!finite && (work.leaves_out || has_loss)))
    scale = has_loss && (stopped || !loss_is_finite) ? kNothingChanges : kNoUpdate;
  *work.scale = scale;
  if (work.norm != nullptr) *work.norm = norm;
}

__global__ void AdaptLossScaleKernel(AdaptLossScaleWork work) {
  if (*work.scale == kNothingChanges) return;
  const bool finite = *work.scale != kNoUpdate;
  float steps = finite ? *work.finite_steps + 1 : 0;
  float factor = *work.factor;
  // A factor that begins below the floor stays as it is.
  if (!finite) factor = fmaxf(factor * work.step.backoff, fminf(factor, kLossScaleFloor));
  if (steps >= work.step.growth_interval) {
    steps = 0;
    if (factor * work.step.growth < Infinity()) factor *= work.step.growth;
  }
  *work.finite_steps = steps;
  *work.factor = factor;
}

}  // namespace

void LaunchAdam(AdamWork work, device::CudaStream stream) {
  const int64_t blocks = NumberBlocks(&work);
  if (blocks == 0) return;
  Launch(stream, &AdamKernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, work);
}

void LaunchSgd(SgdWork work, device::CudaStream stream) {
  const int64_t blocks = NumberBlocks(&work);
  if (blocks == 0) return;
  Launch(stream, &SgdKernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, work);
}

void LaunchSquares(const SquaresWork& work, device::CudaStream stream) {
  if (work.num_pieces == 0) return;
  Launch(stream, &SquaresKernel, dim3(NumBlocks(work.num_pieces, 1)), dim3(kThreads),
         kBlockScratch * sizeof(float), work);
}

void LaunchTotal(const float* partials, int64_t n, float* total, device::CudaStream stream) {
  Launch(stream, &TotalKernel, dim3(1), dim3(TotalThreads(n)), kBlockScratch * sizeof(double),
         partials, n, total);
}

void LaunchTotals(const TotalsWork& work, device::CudaStream stream) {
  int threads = 0;
  for (int t = 0; t < work.num_tensors; ++t) {
    const int64_t begin = t == 0 ? 0 : work.end_piece[t - 1];
    const int of_tensor = TotalThreads(work.end_piece[t] - begin);
    if (of_tensor > threads) threads = of_tensor;
  }
  Launch(stream, &TotalsKernel, dim3(static_cast<unsigned>(work.num_tensors)), dim3(threads),
         kBlockScratch * sizeof(double), work);
  Launch(stream, &AddTotalsKernel, dim3(1), dim3(1), 0, work);
}

void LaunchClipScale(const ClipScaleWork& work, device::CudaStream stream) {
  Launch(stream, &ClipScaleKernel, dim3(1), dim3(1), 0, work);
}

void LaunchAdaptLossScale(const AdaptLossScaleWork& work, device::CudaStream stream) {
  Launch(stream, &AdaptLossScaleKernel, dim3(1), dim3(1), 0, work);
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
