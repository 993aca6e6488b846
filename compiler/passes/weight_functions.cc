#include "compiler/passes/weight_functions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/passes/update_graphs.h"

namespace weir::compiler {
namespace {

const sbp::TensorType& Scalar() {
  static const auto* const kType = new sbp::TensorType{DType::kF32, {}};
  return *kType;
}

std::vector<ops::ValueId> AddGradientArgs(const std::vector<const Variable*>& weights,
                                          FunctionBuilder* builder) {
  std::vector<ops::ValueId> gradients;
  for (const Variable* weight : weights) {
    gradients.push_back(
        builder->AddArg(absl::StrCat("d", gradients.size()), weight->type, weight->layout));
  }
  return gradients;
}

// Samples of moving averages are not late, unlike gradients with a delay.
UpdateRate WithoutDelay(UpdateRate rate) {
  rate.delay = 0;
  return rate;
}

// Returns the attributes of a clip_scale. A micro-batch always has the weight of a micro-batch of a
// whole update, but the first update may have fewer micro-batches.
Attributes FactorAttributes(const UpdateRate& updates) {
  Attributes attrs;
  updates.ToAttributes(&attrs);
  const double steps = static_cast<double>(updates.every),
               first_steps = static_cast<double>(updates.phase + 1);
  if (updates.every > 1 && first_steps < steps) attrs.Set("first_scale", steps / first_steps);
  return attrs;
}

}  // namespace

sbp::Layout AllPartial(const sbp::Mesh& mesh) {
  return sbp::Layout(mesh.num_axes(), sbp::Sbp::P());
}

sbp::Layout LayoutAtRest(const LogicalPlan& plan, const sbp::Mesh& mesh, int zero_stage,
                         const sbp::Layout& compute, const sbp::TensorType& type) {
  sbp::Layout layout = compute;
  if (zero_stage == 0) return layout;
  const int axis = mesh.AxisIndex(plan.settings.training.zero_axis);
  if (axis < 0 || mesh.size(axis) == 1 || type.dims.empty() || !layout[axis].is_broadcast())
    return layout;
  const int64_t parts = mesh.size(axis);
  int best = -1;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    bool taken = false;
    for (const sbp::Sbp& sbp : layout)
      taken = taken || (sbp.is_split() && sbp.axis == static_cast<int>(d));
    if (taken) continue;
    if (best < 0) best = static_cast<int>(d);
    if (type.dims[d].size / type.dims[d].unit >= parts) {
      best = static_cast<int>(d);
      break;
    }
  }
  layout[axis] = sbp::Sbp::S(best < 0 ? 0 : best);
  return layout;
}

void BuildNorm(const std::vector<const Variable*>& weights, const LogicalPlan& plan,
               FunctionBuilder* builder) {
  const sbp::Layout partial = AllPartial(plan.stage_mesh);
  ops::ValueId total = -1;
  for (size_t w = 0; w < weights.size(); ++w) {
    const Variable& weight = *weights[w];
    sbp::Layout square_layout = sbp::Broadcast(plan.stage_mesh);
    for (size_t axis = 0; axis < square_layout.size(); ++axis) {
      if (weight.layout[axis].is_split()) square_layout[axis] = sbp::Sbp::P();
    }
    const ops::ValueId arg = builder->AddArg(absl::StrCat("d", w), weight.type, weight.layout);
    ops::ValueId square = builder->Emit("sum_squares", {arg}, {{Scalar(), square_layout}}, {})[0];
    square = builder->Boxed(square, partial);
    total =
        total < 0 ? square : builder->Emit("add", {total, square}, {{Scalar(), partial}}, {})[0];
  }
  builder->AddResult(total, Frequency::kMicroBatch);
}

void BuildLossSeed(const LogicalPlan& plan, FunctionBuilder* builder) {
  const sbp::Layout everywhere = sbp::Broadcast(plan.stage_mesh);
  const ops::ValueId arg = builder->AddArg("factor", Scalar(), everywhere);
  // The loss that an update minimises is the mean over its micro-batches.
  const double share = 1.0 / static_cast<double>(plan.micro_batches * plan.updates.every);
  builder->AddResult(
      builder->Emit("scale", {arg}, {{Scalar(), everywhere}}, {{"factor", share}})[0],
      Frequency::kMicroBatch);
}

void BuildLossScale(const LogicalPlan& plan, FunctionBuilder* builder) {
  const sbp::Layout everywhere = sbp::Broadcast(plan.stage_mesh);
  const LossScaleSettings& scale = *plan.settings.training.loss_scale;
  const ops::ValueId arg = builder->AddArg("scale", Scalar(), everywhere);
  const std::vector<ops::ValueId> out =
      builder->Emit("adapt_loss_scale", {arg}, {{Scalar(), everywhere}, {Scalar(), everywhere}},
                    {{"growth", scale.growth},
                     {"backoff", scale.backoff},
                     {"growth_interval", scale.growth_interval}});
  builder->AddResult(out[0], Frequency::kMicroBatch);
  builder->MarkState(out[1], "finite_steps");
}

void BuildClip(const LogicalPlan& plan, FunctionBuilder* builder) {
  const sbp::Layout everywhere = sbp::Broadcast(plan.stage_mesh);
  std::vector<ops::ValueId> args = {builder->AddArg("norm2", Scalar(), everywhere)};
  Attributes attrs = FactorAttributes(plan.updates);
  attrs.Set("clip_norm", plan.settings.training.clip_norm);
  if (Adapts(plan.settings.training.loss_scale)) {
    args.push_back(builder->AddArg("factor", Scalar(), everywhere));
    args.push_back(builder->AddArg("loss", Scalar(), everywhere));
  } else if (plan.settings.training.loss_scale.has_value()) {
    attrs.Set("loss_scale", plan.settings.training.loss_scale->factor);
  }
  const std::vector<ops::ValueId> out =
      builder->Emit("clip_scale", args, {{Scalar(), everywhere}, {Scalar(), everywhere}}, attrs);
  builder->AddResult(out[0], Frequency::kMicroBatch);
  builder->AddResult(out[1], Frequency::kMicroBatch);
  if (args.size() == 1) return;
  builder->AddResult(
      builder->Emit("scale", {args[1]}, {{Scalar(), everywhere}}, {{"factor", 1.0}})[0],
      Frequency::kMicroBatch);
}

void BuildSampleFactor(const LogicalPlan& plan, FunctionBuilder* builder) {
  const sbp::Layout everywhere = sbp::Broadcast(plan.stage_mesh);
  const ops::ValueId arg = builder->AddArg("norm2", Scalar(), everywhere);
  Attributes attrs = FactorAttributes(WithoutDelay(plan.updates));
  attrs.Set("clip_norm", 0.0);
  // The root of a factor below 0 is not finite, so averages stay as they are when weights do. The
  // decision for the weights has been made, whatever a run does about values that are not finite.
  if (Adapts(plan.settings.training.loss_scale)) attrs.Set("on_nonfinite", std::string("skip"));
  builder->AddResult(builder->Emit("clip_scale", {arg}, {{Scalar(), everywhere}}, attrs)[0],
                     Frequency::kMicroBatch);
}

void BuildAverages(const std::vector<const Variable*>& averages, const LogicalPlan& plan,
                   FunctionBuilder* builder) {
  const std::vector<ops::ValueId> samples = AddGradientArgs(averages, builder);
  const ops::ValueId factor = builder->AddArg("factor", Scalar(), sbp::Broadcast(plan.stage_mesh));
  const double share = 1.0 / static_cast<double>(plan.micro_batches * plan.updates.every);
  for (size_t i = 0; i < averages.size(); ++i) {
    // average - momentum * (average - sample) is a step of gradient descent.
    const std::pair<sbp::TensorType, sbp::Layout> slot{averages[i]->type, averages[i]->layout};
    const ops::ValueId negative =
        builder->Emit("scale", {samples[i]}, {slot}, {{"factor", -share}})[0];
    Attributes attrs{{"learning_rate", static_cast<double>(averages[i]->momentum)},
                     {"momentum", 0.0},
                     {"weight_decay", 1.0}};
    WithoutDelay(plan.updates).ToAttributes(&attrs);
    builder->AddResult(builder->Emit("sgd", {negative, factor}, {slot}, attrs)[0],
                       Frequency::kMicroBatch);
  }
}

void BuildUpdate(const std::vector<const Variable*>& weights, const LogicalPlan& plan,
                 FunctionBuilder* builder) {
  const std::vector<ops::ValueId> gradients = AddGradientArgs(weights, builder);
  const ops::ValueId scale = builder->AddArg("scale", Scalar(), sbp::Broadcast(plan.stage_mesh));
  std::vector<ops::ValueId> old(weights.size(), -1), updated;
  for (size_t w = 0; w < weights.size(); ++w) {
    if (UpdateReadsWeight(plan, *weights[w]))
      old[w] = builder->AddArg(absl::StrCat("w", w), weights[w]->type, weights[w]->layout);
  }
  for (size_t w = 0; w < weights.size(); ++w) {
    updated.push_back(AddUpdateOf(plan, *weights[w], gradients[w], scale, old[w], builder));
    builder->AddResult(updated.back(), Frequency::kMicroBatch);
  }
  if (!plan.settings.training.average_decay.has_value()) return;
  for (size_t w = 0; w < weights.size(); ++w)
    AddAverageOf(plan, *weights[w], updated[w], scale, builder);
}

std::vector<size_t> WeightsOfStates(const Function& update) {
  std::vector<int> last;  // by weight: the node that makes the new weight
  for (const Result& result : update.results) last.push_back(update.ProducerOf(result.value));
  std::vector<size_t> weights;
  size_t averages = 0;
  for (const auto& [value, name] : update.states) {
    if (name == kAverageState) {
      weights.push_back(averages++);
      continue;
    }
    const auto at = std::lower_bound(last.begin(), last.end(), update.ProducerOf(value));
    weights.push_back(static_cast<size_t>(at - last.begin()));
  }
  return weights;
}

}  // namespace weir::compiler
