// An EagerGradient is a GradientBuilder that runs each node at once on the kernels of the run's
// kind of device. Tests use it for gradient functions, apart from the compiler. Thread rule: one
// thread.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ops/defs/op_def.h"
#include "ops/testing/host_tensor.h"
#include "ops/testing/op_cases.h"
#include "ops/testing/run_kernel.h"

namespace weir::ops {

class EagerGradient final : public GradientBuilder {
 public:
  // `example` must have all outputs computed; `output_grads` is by output.
  EagerGradient(const KernelRun& run, const OpExample& example,
                const std::map<int, HostTensor>& output_grads, std::vector<bool> needs_grad);

  const Attributes& attrs() const override { return run_.attrs; }
  int num_inputs() const override { return static_cast<int>(needs_grad_.size()); }
  ValueId input(int i) const override { return i < num_inputs() ? i : -1; }
  ValueId output(int i) const override { return i < num_outputs_ ? num_inputs() + i : -1; }
  ValueId output_grad(int i) const override;
  bool needs_grad(int i) const override { return i < num_inputs() && needs_grad_[i]; }
  const sbp::TensorType& type(ValueId value) const override { return values_.at(value).type; }
  uint64_t rng_key() const override { return run_.random_key; }
  std::vector<ValueId> Add(const std::string& op, const std::vector<ValueId>& inputs,
                           Attributes attrs) override;
  void SetInputGrad(int i, ValueId grad) override;

  // Returns the first error: a node that is refused, a gradient set twice or without need.
  const absl::Status& status() const { return status_; }
  const std::map<int, ValueId>& grads() const { return grads_; }
  const HostTensor& tensor(ValueId value) const { return values_.at(value).tensor; }

 private:
  struct Value {
    sbp::TensorType type;
    HostTensor tensor;
  };
  ValueId NewValue(const sbp::TensorType& type, const HostTensor& tensor);
  absl::StatusOr<std::vector<ValueId>> TryAdd(const std::string& op,
                                              const std::vector<ValueId>& inputs, Attributes attrs);

  KernelRun run_;
  int num_outputs_ = 0;
  std::vector<bool> needs_grad_;
  std::deque<Value> values_;
  std::map<int, ValueId> output_grads_;
  std::map<int, ValueId> grads_;
  absl::Status status_;
};

}  // namespace weir::ops
