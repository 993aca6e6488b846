// The update of weights (adamw, sgd) and the kernels before it (sum_squares, clip_scale), on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// The numbers of one step, which are the same for every element. `scale` points to what the
// gradients are multiplied with; a negative scale leaves weights and state as they are.
struct AdamWork {
  const float* scale = nullptr;
  float decay = 1;       // 1 - rate * weight_decay
  float beta1_rest = 0;  // 1 - beta1
  float beta2 = 0;
  float beta2_rest = 0;        // 1 - beta2
  float correction2_root = 1;  // sqrt(1 - beta2^t)
  float epsilon = 0;
  float step_size = 0;  // rate / (1 - beta1^t)
  int64_t n = 0;
  const float* gradient = nullptr;
  float* weight = nullptr;
  float* first = nullptr;  // the moments
  float* second = nullptr;
};
void LaunchAdam(const AdamWork& work, device::CudaStream stream);

enum class Momentum : uint8_t { kNone, kFirst, kLater };

struct SgdWork {
  const float* scale = nullptr;  // as above
  float weight_decay = 0, momentum = 0, rate = 0;
  Momentum kind = Momentum::kNone;
  int64_t n = 0;
  const float* gradient = nullptr;
  float* weight = nullptr;
  float* buffer = nullptr;  // null without momentum
};
void LaunchSgd(const SgdWork& work, device::CudaStream stream);

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

// Sets scale, and norm unless norm is null.
struct ClipScaleWork {
  const float* total = nullptr;  // the sum of squares
  float clip_norm = 0;           // 0: none
  float first_scale = 1;         // what the gradients of this step count more
  bool leaves_out = false;       // a norm that is not finite means no update
  bool stays = false;            // no update follows such a norm
  int32_t* stopped = nullptr;    // whether there was such a norm; memory of the kernel
  bool is_first = false;         // this launch is the first that gets `stopped`
  float* scale = nullptr;
  float* norm = nullptr;
};
void LaunchClipScale(const ClipScaleWork& work, device::CudaStream stream);

// Returns memory of the current device for one number, or null if there is none left. The memory
// outlives what has been launched with it: free it once the stream has done its work.
int32_t* NewFlag();
void FreeFlag(int32_t* flag);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
