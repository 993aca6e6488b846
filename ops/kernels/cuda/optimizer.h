// The update of weights (adamw, sgd) and the kernels before it (sum_squares, clip_scale), and
// adapt_loss_scale, on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/shape/optimizer_numbers.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Weights that one launch updates, all with one scale: what their gradients are multiplied with; a
// negative scale leaves weights and state as they are. A weight without elements is left out.
struct AdamWork {
  static constexpr int kTensorsMax = 32;
  struct Tensor {
    AdamNumbers numbers;
    int64_t n;
    const float* gradient;
    float* weight;
    float* first;  // the moments
    float* second;
    int64_t first_block;  // of the launch; LaunchAdam sets it
  };
  const float* scale = nullptr;
  int num_tensors = 0;
  Tensor tensors[kTensorsMax];
};
void LaunchAdam(AdamWork work, device::CudaStream stream);

struct SgdWork {
  static constexpr int kTensorsMax = 32;
  struct Tensor {
    SgdNumbers numbers;
    int64_t n;
    const float* gradient;
    float* weight;
    float* buffer;  // null without momentum
    int64_t first_block;
  };
  const float* scale = nullptr;  // as above
  int num_tensors = 0;
  Tensor tensors[kTensorsMax];
};
void LaunchSgd(SgdWork work, device::CudaStream stream);

// Tensors whose squares one launch sums. A piece is kSquaresPiece elements of one tensor, and
// becomes one partial sum.
constexpr int64_t kSquaresPiece = 16384;
struct SquaresWork {
  static constexpr int kTensorsMax = 64;
  struct Tensor {
    const void* data;
    int64_t n;
    int64_t first_piece;
    DType dtype;
  };
  Tensor tensors[kTensorsMax];
  int num_tensors = 0;
  int64_t first_piece = 0, num_pieces = 0;  // of this launch
  float* partials = nullptr;                // of all launches, by piece
};
void LaunchSquares(const SquaresWork& work, device::CudaStream stream);
// Sets total to the sum of n partial sums.
void LaunchTotal(const float* partials, int64_t n, float* total, device::CudaStream stream);

// Sets total to what kernels of sum_squares, one for each tensor, and additions of their results,
// one after another, would make of the partial sums. `totals` is memory for a number per tensor.
struct TotalsWork {
  static constexpr int kTensorsMax = 256;
  int64_t end_piece[kTensorsMax];  // where the partial sums of each tensor end
  int num_tensors = 0;
  const float* partials = nullptr;
  float* totals = nullptr;
  float* total = nullptr;
};
void LaunchTotals(const TotalsWork& work, device::CudaStream stream);

// Sets scale, and norm unless norm is null.
struct ClipScaleWork {
  const float* total = nullptr;  // the sum of squares
  float clip_norm = 0;           // 0: none
  float loss_scale = 1;          // the factor of the gradients, unless `factor` gives it
  const float* factor = nullptr;
  const float* loss = nullptr;  // only with a loss scale that adapts: tells overflows from errors
  float first_scale = 1;        // what the gradients of this step count more
  bool leaves_out = false;      // a norm that is not finite means no update
  bool stays = false;           // no update follows such a norm, or a loss that is not finite
  int32_t* stopped = nullptr;   // whether there was such a norm or loss; memory of the kernel
  bool is_first = false;        // this launch is the first that gets `stopped`
  float* scale = nullptr;
  float* norm = nullptr;
};
void LaunchClipScale(const ClipScaleWork& work, device::CudaStream stream);

struct AdaptLossScaleWork {
  LossScaleStep step;
  const float* scale = nullptr;  // the scale of ClipScaleWork
  float* factor = nullptr;
  float* finite_steps = nullptr;
};
void LaunchAdaptLossScale(const AdaptLossScaleWork& work, device::CudaStream stream);

// Returns memory of the current device for one number, or null if there is none left. The memory
// outlives what has been launched with it: free it once the stream has done its work.
int32_t* NewFlag();
void FreeFlag(int32_t* flag);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
