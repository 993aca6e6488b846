// A block has a row, which it reads twice: for the sum, and for the result. The second time the row
// comes from a cache.
#include "ops/kernels/cuda/softmax.h"

#include "ops/kernels/cuda/block_reduce.cuh"
#include "ops/kernels/cuda/exp_sum.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreadsMax = 512;

template <typename T>
__global__ void SoftmaxKernel(SoftmaxWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t r = blockIdx.x; r < work.rows; r += gridDim.x) {
    const T* x = static_cast<const T*>(work.x) + r * work.n;
    T* y = static_cast<T*>(work.y) + r * work.n;
    ExpSum of_thread;
    ForRow(
        x, work.n, threadIdx.x, blockDim.x,
        [&](int64_t first) { of_thread.Add(LoadVector(x + first)); },
        [&](int64_t i) { of_thread.Add(ToFloat(x[i])); });
    const ExpSum all = BlockExpSum(of_thread, scratch);
    const float factor = 1.0f / all.sum;
    ForRow(
        x, work.n, threadIdx.x, blockDim.x,
        [&](int64_t first) {
          const Vector<T> pack = LoadVector(x + first);
          Vector<T> result;
          WEIR_UNROLL
          for (int i = 0; i < kPackSize<T>; ++i)
            Store(&result.at[i], expf(ToFloat(pack.at[i]) - all.max) * factor);
          StoreVector(y + first, result);
        },
        [&](int64_t i) { Store(&y[i], expf(ToFloat(x[i]) - all.max) * factor); });
  }
}

template <typename T>
__global__ void SoftmaxGradKernel(SoftmaxGradWork work) {
  WEIR_SHARED(float, scratch);
  for (int64_t r = blockIdx.x; r < work.rows; r += gridDim.x) {
    const T* y = static_cast<const T*>(work.y) + r * work.n;
    const T* dy = static_cast<const T*>(work.dy) + r * work.n;
    T* dx = static_cast<T*>(work.dx) + r * work.n;
    float sum = 0;
    ForRow(
        y, work.n, threadIdx.x, blockDim.x,
        [&](int64_t first) {
          const Vector<T> ys = LoadVector(y + first), dys = LoadVector(dy + first);
          WEIR_UNROLL
          for (int i = 0; i < kPackSize<T>; ++i) sum += ToFloat(ys.at[i]) * ToFloat(dys.at[i]);
        },
        [&](int64_t i) { sum += ToFloat(y[i]) * ToFloat(dy[i]); });
    sum = BlockSum(sum, scratch);
    ForRow(
        y, work.n, threadIdx.x, blockDim.x,
        [&](int64_t first) {
          const Vector<T> ys = LoadVector(y + first), dys = LoadVector(dy + first);
          Vector<T> result;
          WEIR_UNROLL
          for (int i = 0; i < kPackSize<T>; ++i)
            Store(&result.at[i], ToFloat(ys.at[i]) * (ToFloat(dys.at[i]) - sum));
          StoreVector(dx + first, result);
        },
        [&](int64_t i) { Store(&dx[i], ToFloat(y[i]) * (ToFloat(dy[i]) - sum)); });
  }
}

template <typename Work>
void LaunchRows(void (*kernel)(Work), const Work& work, device::CudaStream stream) {
  if (work.rows == 0 || work.n == 0) return;
  const int threads = ThreadsOfRow(work.n, PackSizeOf(work.dtype), kThreadsMax);
  Launch(stream, kernel, dim3(NumBlocks(work.rows, 1)), dim3(threads),
         kBlockScratch * sizeof(float), work);
}

}  // namespace

void LaunchSoftmax(const SoftmaxWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchRows(&SoftmaxKernel<T>, work, stream); });
}

void LaunchSoftmaxGrad(const SoftmaxGradWork& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchRows(&SoftmaxGradKernel<T>, work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
