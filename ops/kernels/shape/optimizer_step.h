// The numbers of the updates of adamw and sgd, step by step, from the attributes of the op: the
// same for kernels of every device. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/kernels/shape/optimizer_numbers.h"
#include "runtime/base/attributes.h"
#include "runtime/base/schedule.h"
#include "runtime/base/update_rate.h"

namespace weir::kernels {

class AdamSteps {
 public:
  explicit AdamSteps(const Attributes& attrs);
  // Returns the numbers of the update in this step of the job, or nothing if the step has none.
  std::optional<AdamNumbers> At(int64_t step) const;

 private:
  LearningRateSchedule schedule_;
  UpdateRate updates_;
  double beta1_, beta2_, epsilon_, weight_decay_;
};

class SgdSteps {
 public:
  explicit SgdSteps(const Attributes& attrs);
  // As above. `has_buffer`: the weight has a buffer of momentum.
  std::optional<SgdNumbers> At(int64_t step, bool has_buffer) const;

 private:
  LearningRateSchedule schedule_;
  UpdateRate updates_;
  double momentum_, weight_decay_;
};

LossScaleStep LossScaleStepOf(const Attributes& attrs);

}  // namespace weir::kernels
