#include "ops/testing/eager_gradient.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::ops {

EagerGradient::EagerGradient(const KernelRun& run, const OpExample& example,
                             const std::map<int, HostTensor>& output_grads,
                             std::vector<bool> needs_grad)
    : run_(run),
      num_outputs_(static_cast<int>(example.outputs.size())),
      needs_grad_(std::move(needs_grad)) {
  for (size_t i = 0; i < example.inputs.size(); ++i)
    NewValue(example.input_types[i], example.inputs[i]);
  for (size_t i = 0; i < example.outputs.size(); ++i)
    NewValue(example.output_types[i], example.outputs[i]);
  for (const auto& [output, grad] : output_grads)
    output_grads_[output] = NewValue(example.output_types[output], grad);
}

ValueId EagerGradient::NewValue(const sbp::TensorType& type, const HostTensor& tensor) {
  values_.push_back({type, tensor});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId EagerGradient::output_grad(int i) const {
  auto it = output_grads_.find(i);
  return it == output_grads_.end() ? -1 : it->second;
}

absl::StatusOr<std::vector<ValueId>> EagerGradient::TryAdd(const std::string& op,
                                                           const std::vector<ValueId>& inputs,
                                                           Attributes attrs) {
  const OpDef* def = OpRegistry::Find(op);
  if (def == nullptr) return absl::NotFoundError(absl::StrCat("no op \"", op, "\""));
  WEIR_RETURN_IF_ERROR(CheckSchema(def->schema, static_cast<int>(inputs.size()),
                                   static_cast<int>(def->schema.outputs.size()), &attrs, op));
  std::vector<sbp::TensorType> types;
  std::vector<HostTensor> tensors;
  for (ValueId input : inputs) {
    if (input < 0) return absl::InternalError(absl::StrCat(op, ": an absent value as an input"));
    types.push_back(values_[input].type);
    tensors.push_back(values_[input].tensor);
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<sbp::TensorType> output_types, def->infer({attrs, types, {}}));
  std::vector<HostTensor> outputs;
  for (const sbp::TensorType& type : output_types) outputs.emplace_back(type);
  KernelRun run = run_;
  run.op = op;
  run.attrs = attrs;
  WEIR_RETURN_IF_ERROR(RunKernel(run, tensors, &outputs));
  std::vector<ValueId> results;
  for (size_t i = 0; i < outputs.size(); ++i)
    results.push_back(NewValue(output_types[i], outputs[i]));
  return results;
}

std::vector<ValueId> EagerGradient::Add(const std::string& op, const std::vector<ValueId>& inputs,
                                        Attributes attrs) {
  if (status_.ok()) {
    auto results = TryAdd(op, inputs, std::move(attrs));
    if (results.ok()) return *results;
    status_ = results.status();
  }
  // The gradient function goes on with these values; the status says that they are meaningless.
  ValueId nothing = NewValue(sbp::TensorType{}, HostTensor(sbp::TensorType{}));
  return {nothing, nothing, nothing};
}

void EagerGradient::SetInputGrad(int i, ValueId grad) {
  if (!status_.ok()) return;
  if (!needs_grad(i)) {
    status_ = absl::InternalError(absl::StrCat("a gradient of input ", i, ", which needs none"));
  } else if (!grads_.emplace(i, grad).second) {
    status_ = absl::InternalError(absl::StrCat("two gradients of input ", i));
  }
}

}  // namespace weir::ops
