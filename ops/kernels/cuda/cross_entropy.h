// softmax_cross_entropy over whole rows and over shards of the vocabulary, and accuracy, on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Rows of logits and what a target in each of them means. The shard has the classes
// [first, first + n) of the vocabulary.
struct LogitRows {
  DType dtype = DType::kF32;
  int64_t rows = 0, n = 0, first = 0;
  const void* logits = nullptr;
  const int32_t* targets = nullptr;
  bool ignores = false;  // targets that equal `ignored` do not count
  int32_t ignored = 0;
  float of_target = 1;  // the weight of the target's own logit
  float of_each = 0;    // the weight that each logit has besides
};

// Sets loss, max and sum_exp of each row; max and sum_exp may be null.
struct CrossEntropyWork {
  LogitRows rows;
  float* loss = nullptr;
  float* max = nullptr;
  float* sum_exp = nullptr;
};
void LaunchCrossEntropy(const CrossEntropyWork& work, device::CudaStream stream);

// Sets sum_exp and picked of each row of a shard, whose maximum over all shards is known.
struct ExpSumPickWork {
  LogitRows rows;
  const float* max = nullptr;
  float* sum_exp = nullptr;
  float* picked = nullptr;
};
void LaunchExpSumPick(const ExpSumPickWork& work, device::CudaStream stream);

// Sets loss from what all shards added up. `targets` is null unless some targets are ignored.
struct CrossEntropyFinishWork {
  int64_t rows = 0;
  const float* max = nullptr;
  const float* sum_exp = nullptr;
  const float* picked = nullptr;
  const int32_t* targets = nullptr;
  int32_t ignored = 0;
  float* loss = nullptr;
};
void LaunchCrossEntropyFinish(const CrossEntropyFinishWork& work, device::CudaStream stream);

// Sets dlogits, which may be the logits.
struct CrossEntropyGradWork {
  LogitRows rows;
  const float* max = nullptr;
  const float* sum_exp = nullptr;
  const float* dloss = nullptr;
  void* dlogits = nullptr;
};
void LaunchCrossEntropyGrad(const CrossEntropyGradWork& work, device::CudaStream stream);

// Sets hit to 1 where the first of the largest logits is the target's, else to 0.
struct AccuracyWork {
  LogitRows rows;
  float* hit = nullptr;
};
void LaunchAccuracy(const AccuracyWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
