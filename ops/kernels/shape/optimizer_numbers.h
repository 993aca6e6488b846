// The numbers of one update that are the same for every element of a weight. Thread rule: values.
#pragma once

#include <cstdint>

namespace weir::kernels {

struct AdamNumbers {
  float decay = 1;       // 1 - rate * weight_decay
  float beta1_rest = 0;  // 1 - beta1
  float beta2 = 0;
  float beta2_rest = 0;        // 1 - beta2
  float correction2_root = 1;  // sqrt(1 - beta2^t)
  float epsilon = 0;
  float step_size = 0;  // rate / (1 - beta1^t)
};

// kFirst: the first update with momentum, which has no buffer to read.
enum class Momentum : uint8_t { kNone, kFirst, kLater };

struct SgdNumbers {
  float weight_decay = 0, momentum = 0, rate = 0;
  Momentum kind = Momentum::kNone;
};

// A LossScaleStep has the numbers by which adapt_loss_scale changes the factor of the loss scale.
struct LossScaleStep {
  float growth;
  float backoff;
  float growth_interval;  // finite steps in a row, a whole number
};

// The results of clip_scale that are no factors of gradients. Updates write nothing on either.
// kNoUpdate: gradients are not finite. kNothingChanges: the loss is not finite, or the run stops,
// so the loss scale stays as it is, too.
inline constexpr float kNoUpdate = -1, kNothingChanges = -2;

// The least factor that a backoff makes. Smaller factors would make their inverse infinite, and no
// overflow needs one.
inline constexpr float kLossScaleFloor = 0x1p-24f;

}  // namespace weir::kernels
