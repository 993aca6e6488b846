// The host's side of the ops of ops/defs/optimizer.cc, the same for kernels of every device: the
// check of the operands, and the map (update_maps.h) of a step. At returns no map if the step
// changes nothing. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/update_maps.h"
#include "runtime/base/schedule.h"
#include "runtime/base/update_rate.h"

namespace weir::kernels {

class LionUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit LionUpdate(const KernelSpec& spec);
  std::optional<LionMap> At(const KernelArgs& args) const;

 private:
  LearningRateSchedule schedule_;
  UpdateRate updates_;
  double beta1_, beta2_, weight_decay_;
};

class AdamDirectionUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit AdamDirectionUpdate(const KernelSpec& spec);
  std::optional<AdamDirectionMap> At(const KernelArgs& args) const;

 private:
  UpdateRate updates_;
  double beta1_, beta2_, epsilon_, weight_decay_;
};

class MomentumDirectionUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit MomentumDirectionUpdate(const KernelSpec& spec);
  std::optional<MomentumDirectionMap> At(const KernelArgs& args) const;

 private:
  UpdateRate updates_;
  double momentum_;
  bool nesterov_;
};

class MomentOfSquaresUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit MomentOfSquaresUpdate(const KernelSpec& spec);
  std::optional<MomentOfSquaresMap> At(const KernelArgs& args) const;

 private:
  UpdateRate updates_;
  double beta2_decay_, count_;
};

class WeightAverageUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit WeightAverageUpdate(const KernelSpec& spec);
  std::optional<WeightAverageMap> At(const KernelArgs& args) const;

 private:
  UpdateRate updates_;
  double decay_;
};

class WeightStepUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit WeightStepUpdate(const KernelSpec& spec);
  std::optional<WeightStepMap> At(const KernelArgs& args) const;

 private:
  LearningRateSchedule schedule_;
  UpdateRate updates_;
  StepLength by_;
  double factor_, count_, epsilon2_, clip_threshold_, weight_decay_;
};

class UnitNormUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit UnitNormUpdate(const KernelSpec& spec);
  std::optional<UnitNormMap> At(const KernelArgs& args) const;

 private:
  double epsilon_;
};

class AdafactorDirectionUpdate {
 public:
  static absl::Status Check(const KernelSpec& spec);
  explicit AdafactorDirectionUpdate(const KernelSpec& spec);
  std::optional<AdafactorDirectionMap> At(const KernelArgs& args) const;

 private:
  int64_t rows_ = 1, columns_ = 1;
  double epsilon1_, count_;
};

// Calls visit(name of the op, Type<Update>()) for all of them.
template <typename Update>
struct UpdateType {
  using type = Update;
};
template <typename Visit>
void ForEachUpdate(Visit&& visit) {
  visit("lion", UpdateType<LionUpdate>());
  visit("adam_direction", UpdateType<AdamDirectionUpdate>());
  visit("momentum_direction", UpdateType<MomentumDirectionUpdate>());
  visit("moment_of_squares", UpdateType<MomentOfSquaresUpdate>());
  visit("weight_average", UpdateType<WeightAverageUpdate>());
  visit("weight_step", UpdateType<WeightStepUpdate>());
  visit("unit_norm", UpdateType<UnitNormUpdate>());
  visit("adafactor_direction", UpdateType<AdafactorDirectionUpdate>());
}

}  // namespace weir::kernels
