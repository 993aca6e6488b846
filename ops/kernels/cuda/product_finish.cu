#include "ops/kernels/cuda/product_finish.h"

#include "ops/kernels/cuda/launch.cuh"
#include "ops/kernels/cuda/unary_functions.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

constexpr int kThreads = 256;

__device__ inline float Apply(Activation activation, float x) {
  const UnaryConstants none;
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return Relu(none).Value(x);
    case Activation::kGelu: return Gelu(none).Value(x);
    case Activation::kGeluExact: return GeluExact(none).Value(x);
    case Activation::kSilu: return Silu(none).Value(x);
  }
  return x;
}

// Returns the element as stored.
template <typename T>
__device__ inline float Rounded(const T*, float x) {
  T stored;
  Store(&stored, x);
  return ToFloat(stored);
}

template <typename T>
struct Operands {
  const T* product;
  const void* bias;
  DType bias_dtype;
  T* pre;
  T* y;

  __device__ float Bias(int64_t column) const { return RealAt(bias_dtype, bias, column); }
};

// Each thread takes kPack elements of one row, or one element where rows are no whole packs.
template <typename T, int kPack>
__global__ void FinishKernel(Activation activation, Operands<T> of, int64_t count,
                             int64_t columns) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (first >= count) return;
  const int64_t column = first % columns;
  Pack<T, kPack> product, y;
  if (of.product != nullptr) product = *reinterpret_cast<const Pack<T, kPack>*>(of.product + first);
  for (int i = 0; i < kPack; ++i) {
    float x = of.product != nullptr ? ToFloat(product.at[i]) : 0.0f;
    if (of.bias != nullptr) x += of.Bias(column + i);
    Store(&product.at[i], x);
    Store(&y.at[i], Apply(activation, Rounded(of.y, x)));
  }
  if (of.pre != nullptr) StoreWhole(of.pre + first, product);
  StoreWhole(of.y + first, y);
}

template <typename T>
void LaunchOf(const ProductFinish& work, device::CudaStream stream) {
  const Operands<T> operands{static_cast<const T*>(work.product), work.bias, work.bias_dtype,
                             static_cast<T*>(work.pre), static_cast<T*>(work.y)};
  const int64_t count = work.rows * work.columns;
  const bool packed = work.columns % kPackSize<T> == 0;
  const int64_t per_block = int64_t{kThreads} * (packed ? kPackSize<T> : 1);
  const auto blocks = static_cast<unsigned>((count + per_block - 1) / per_block);
  if (blocks == 0) return;
  Launch(stream, packed ? &FinishKernel<T, kPackSize<T>> : &FinishKernel<T, 1>, dim3(blocks),
         dim3(kThreads), 0, work.activation, operands, count, work.columns);
}

}  // namespace

void LaunchProductFinish(const ProductFinish& work, device::CudaStream stream) {
  WithReal(work.dtype, [&]<typename T>(T*) { LaunchOf<T>(work, stream); });
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
