#include "ops/kernels/cuda/cross_entropy.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/exp_sum.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreadsMax = 512;

__device__ inline bool IsIgnored(const LogitRows& rows, int32_t target) {
  return rows.ignores && target == rows.ignored;
}

// The place of the target in a row of this shard, -1 if the shard does not have the target.
__device__ inline int64_t PlaceOf(const LogitRows& rows, int32_t target) {
  const int64_t place = target - rows.first;
  return 0 <= place && place < rows.n ? place : -1;
}

template <typename T>
__device__ inline float Picked(const LogitRows& rows, const T* row, int32_t target, float sum) {
  const int64_t place = PlaceOf(rows, target);
  const float logit = place < 0 ? 0.0f : ToFloat(row[place]);
  return rows.of_each == 0 ? logit : rows.of_target * logit + rows.of_each * sum;
}

template <typename T>
__device__ void CrossEntropyRow(const CrossEntropyWork& work, int64_t r, float* scratch) {
  const LogitRows& rows = work.rows;
  const T* row = static_cast<const T*>(rows.logits) + r * rows.n;
  const bool needs_sum = rows.of_each != 0;
  ExpSum of_thread;
  float sum = 0;
  ForRow(
      row, rows.n, threadIdx.x, blockDim.x,
      [&](int64_t first) {
        const Vector<T> logits = LoadVector(row + first);
        of_thread.Add(logits);
        if (needs_sum)
          for (int i = 0; i < kPackSize<T>; ++i) sum += ToFloat(logits.at[i]);
      },
      [&](int64_t i) {
        of_thread.Add(ToFloat(row[i]));
        if (needs_sum) sum += ToFloat(row[i]);
      });
  const ExpSum all = BlockExpSum(of_thread, scratch);
  if (needs_sum) sum = BlockSum(sum, scratch);
  if (threadIdx.x != 0) return;
  const int32_t target = rows.targets[r];
  work.loss[r] =
      IsIgnored(rows, target) ? 0.0f : logf(all.sum) + all.max - Picked(rows, row, target, sum);
  if (work.max != nullptr) work.max[r] = all.max;
  if (work.sum_exp != nullptr) work.sum_exp[r] = all.sum;
}

template <typename T>
__device__ void ExpSumPickRow(const ExpSumPickWork& work, int64_t r, float* scratch) {
  const LogitRows& rows = work.rows;
  const T* row = static_cast<const T*>(rows.logits) + r * rows.n;
  // With a maximum of -inf, which all logits of the whole row share, all terms are 0.
  const float shift = work.max[r] == -Infinity() ? 0.0f : work.max[r];
  float sum_exp = 0, sum = 0;
  ForRow(
      row, rows.n, threadIdx.x, blockDim.x,
      [&](int64_t first) {
        const Vector<T> logits = LoadVector(row + first);
        for (int i = 0; i < kPackSize<T>; ++i) {
          sum_exp += expf(ToFloat(logits.at[i]) - shift);
          sum += ToFloat(logits.at[i]);
        }
      },
      [&](int64_t i) {
        sum_exp += expf(ToFloat(row[i]) - shift);
        sum += ToFloat(row[i]);
      });
  sum_exp = BlockSum(sum_exp, scratch);
  sum = BlockSum(sum, scratch);
  if (threadIdx.x != 0) return;
  work.sum_exp[r] = sum_exp;
  work.picked[r] = Picked(rows, row, rows.targets[r], sum);
}

__global__ void CrossEntropyFinishKernel(CrossEntropyFinishWork work) {
  for (int64_t r = GlobalThread(); r < work.rows; r += NumThreads()) {
    const bool counts = work.targets == nullptr || work.targets[r] != work.ignored;
    work.loss[r] = counts ? logf(work.sum_exp[r]) + work.max[r] - work.picked[r] : 0.0f;
  }
}

#ifdef WEIR_CUDA_EMULATED
__device__ inline float Exp2(float x) { return exp2f(x); }
#else
// Two units in the last place from 2^x, in one instruction.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

// e^(x - max) as precisely as a result of type T shows. A bf16 result has 8 bits and an f16 result
// 11, so their errors may be that of a product with log2(e): about 1e-7 times the larger of |x| and
// |max|.
template <typename T>
struct ExpBelow {
  float max;

  __device__ explicit ExpBelow(float of_row) : max(of_row) {}
  __device__ float operator()(float x) const { return expf(x - max); }
};
template <>
struct ExpBelow<Bf16> {
  static constexpr float kLog2E = 1.44269504f;
  float scaled_max;

  __device__ explicit ExpBelow(float of_row) : scaled_max(of_row * kLog2E) {}
  __device__ float operator()(float x) const { return Exp2(fmaf(x, kLog2E, -scaled_max)); }
};

template <>
struct ExpBelow<F16> : ExpBelow<Bf16> {
  __device__ explicit ExpBelow(float of_row) : ExpBelow<Bf16>(of_row) {}
};

// d = e^(x - max) dloss / sum_exp - of_each dloss, less of_target dloss at the target. An element
// costs few instructions, so that memory sets the time: the target is looked for once in a pack.
template <typename T>
__device__ void CrossEntropyGradRow(const CrossEntropyGradWork& work, int64_t r) {
  constexpr int kPack = kPackSize<T>;
  const LogitRows& rows = work.rows;
  const T* row = static_cast<const T*>(rows.logits) + r * rows.n;
  T* drow = static_cast<T*>(work.dlogits) + r * rows.n;
  const int32_t target = rows.targets[r];
  if (IsIgnored(rows, target)) {
    ForRow(
        drow, rows.n, threadIdx.x, blockDim.x,
        [&](int64_t first) { StoreVector(drow + first, Vector<T>{}); },
        [&](int64_t i) { Store(&drow[i], 0.0f); });
    return;
  }
  const int64_t place = PlaceOf(rows, target);
  const float dloss = work.dloss[r];
  const ExpBelow<T> exp_below(work.max[r]);
  const float factor = dloss / work.sum_exp[r];
  const float less = rows.of_each * dloss, less_at_target = rows.of_target * dloss;
  ForRow(
      row, rows.n, threadIdx.x, blockDim.x,
      [&](int64_t first) {
        const Vector<T> logits = LoadVector(row + first);
        float d[kPack];
        WEIR_UNROLL
        for (int i = 0; i < kPack; ++i)
          d[i] = fmaf(exp_below(ToFloat(logits.at[i])), factor, -less);
        if (first <= place && place < first + kPack) {
          WEIR_UNROLL
          for (int i = 0; i < kPack; ++i) {
            if (first + i == place) d[i] -= less_at_target;
          }
        }
        Vector<T> dlogits;
        WEIR_UNROLL
        for (int i = 0; i < kPack; ++i) Store(&dlogits.at[i], d[i]);
        StoreVector(drow + first, dlogits);
      },
      [&](int64_t i) {
        const float d = fmaf(exp_below(ToFloat(row[i])), factor, -less);
        Store(&drow[i], i == place ? d - less_at_target : d);
      });
}

template <typename T>
__device__ void AccuracyRow(const AccuracyWork& work, int64_t r, float* scratch) {
  const LogitRows& rows = work.rows;
  const T* row = static_cast<const T*>(rows.logits) + r * rows.n;
  float max = -Infinity();
  ForRow(
      row, rows.n, threadIdx.x, blockDim.x,
      [&](int64_t first) {
        const Vector<T> logits = LoadVector(row + first);
        for (int i = 0; i < kPackSize<T>; ++i) max = MaxOrNaN(max, ToFloat(logits.at[i]));
      },
      [&](int64_t i) { max = MaxOrNaN(max, ToFloat(row[i])); });
  max = BlockMax(max, scratch);
  // The target is hit if its logit is the largest and no logit before it is as large.
  const int32_t target = rows.targets[r];
  const bool possible =
      !IsIgnored(rows, target) && 0 <= target && target < rows.n && ToFloat(row[target]) == max;
  float equal_before = 0;
  if (possible) {
    for (int64_t i = threadIdx.x; i < target; i += blockDim.x)
      if (ToFloat(row[i]) == max) equal_before = 1;
  }
  equal_before = BlockMax(equal_before, scratch);
  if (threadIdx.x == 0) work.hit[r] = possible && equal_before == 0 ? 1.0f : 0.0f;
}

// Each kernel hands the rows of its work to its blocks in turn.
template <typename T>
__global__ void CrossEntropyKernel(CrossEntropyWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t r = blockIdx.x; r < work.rows.rows; r += gridDim.x)
    CrossEntropyRow<T>(work, r, scratch);
}

template <typename T>
__global__ void ExpSumPickKernel(ExpSumPickWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t r = blockIdx.x; r < work.rows.rows; r += gridDim.x)
    ExpSumPickRow<T>(work, r, scratch);
}

template <typename T>
__global__ void CrossEntropyGradKernel(CrossEntropyGradWork work) {
  for (int64_t r = blockIdx.x; r < work.rows.rows; r += gridDim.x) CrossEntropyGradRow<T>(work, r);
}

template <typename T>
__global__ void AccuracyKernel(AccuracyWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t r = blockIdx.x; r < work.rows.rows; r += gridDim.x) AccuracyRow<T>(work, r, scratch);
}

template <typename Work>
void LaunchRows(void (*kernel)(Work), const Work& work, device::CudaStream stream) {
  const LogitRows& rows = work.rows;
  if (rows.rows == 0) return;
  const int threads = ThreadsOfRow(rows.n, PackSizeOf(rows.dtype), kThreadsMax);
  Launch(stream, kernel, dim3(NumBlocks(rows.rows, 1)), dim3(threads),
         kBlockScratch * sizeof(float), work);
}

}  // namespace

void LaunchCrossEntropy(const CrossEntropyWork& work, device::CudaStream stream) {
  WithReal(work.rows.dtype,
           [&]<typename T>(T*) { LaunchRows(&CrossEntropyKernel<T>, work, stream); });
}

void LaunchExpSumPick(const ExpSumPickWork& work, device::CudaStream stream) {
  WithReal(work.rows.dtype,
           [&]<typename T>(T*) { LaunchRows(&ExpSumPickKernel<T>, work, stream); });
}

void LaunchCrossEntropyFinish(const CrossEntropyFinishWork& work, device::CudaStream stream) {
  constexpr int kThreads = 256;
  if (work.rows == 0) return;
  Launch(stream, &CrossEntropyFinishKernel, dim3(NumBlocks(work.rows, kThreads)), dim3(kThreads), 0,
         work);
}

void LaunchCrossEntropyGrad(const CrossEntropyGradWork& work, device::CudaStream stream) {
  WithReal(work.rows.dtype,
           [&]<typename T>(T*) { LaunchRows(&CrossEntropyGradKernel<T>, work, stream); });
}

void LaunchAccuracy(const AccuracyWork& work, device::CudaStream stream) {
  WithReal(work.rows.dtype, [&]<typename T>(T*) { LaunchRows(&AccuracyKernel<T>, work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
