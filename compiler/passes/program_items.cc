#include "compiler/passes/program_items.h"

#include "absl/strings/str_cat.h"
#include "compiler/passes/weight_functions.h"

namespace weir::compiler {

ProgramItems::ProgramItems(const LayoutRules& rules, LogicalPlan* plan)
    : rules_(rules), plan_(*plan), module_(plan->module) {}

Frequency ProgramItems::at_update() const {
  return plan_.updates.every > 1 ? Frequency::kUpdate : Frequency::kStep;
}
Frequency ProgramItems::after_update() const {
  return plan_.updates.every > 1 && plan_.updates.phase == plan_.updates.every - 1
             ? Frequency::kAfterUpdate
             : Frequency::kStep;
}

int ProgramItems::NewValue(const std::string& name, const sbp::TensorType& type,
                           const sbp::Layout& layout, int64_t stage, Frequency frequency) {
  ProgramValue value;
  value.name = name;
  value.type = type;
  value.layout = layout;
  value.stage = stage;
  value.frequency = frequency;
  return module_.AddValue(std::move(value));
}

ProgramItem& ProgramItems::NewItem(ItemKind kind, PhaseKind phase, const std::string& name,
                                   Frequency frequency) {
  ProgramItem item;
  item.kind = kind;
  item.phase = phase;
  item.name = name;
  item.frequency = frequency;
  item.part = part_;
  module_.items.push_back(std::move(item));
  return module_.items.back();
}

int ProgramItems::Boxed(int value, const sbp::Layout& layout, int64_t stage, Frequency frequency,
                        const std::string& purpose) {
  const ProgramValue have = module_.values[value];
  if (have.layout == layout && have.stage == stage) return value;
  std::string key = absl::StrCat(value, "|", stage, "|", static_cast<int>(frequency), "|", purpose,
                                 "|", ToText(layout, plan_.stage_mesh));
  auto known = boxed_.find(key);
  if (known != boxed_.end()) return known->second;
  int out = NewValue(have.name, have.type, layout, stage, frequency);
  ProgramItem& item =
      NewItem(ItemKind::kBoxing, PhaseKind::kBoxing,
              purpose.empty() ? have.name : absl::StrCat(have.name, " for ", purpose), frequency);
  item.inputs = {value};
  item.outputs = {out};
  item.why = rules_.WhyBoxed(have.layout, layout);
  if (have.stage != stage) item.why.push_back({LayoutReason::Kind::kStages});
  boxed_[key] = out;
  return out;
}

int ProgramItems::InternFunction(int64_t stage, FunctionBuilder& builder) {
  Function function = builder.Take();
  function.rules_of_stage = rules_.FirstWithMeshOf(stage);
  std::string text = absl::StrCat(function.rules_of_stage, " ", ToText(function, plan_.stage_mesh));
  auto known = interned_.find(text);
  if (known != interned_.end()) return known->second;
  module_.functions.push_back(std::move(function));
  int index = static_cast<int>(module_.functions.size()) - 1;
  interned_[text] = index;
  return index;
}

int ProgramItems::Sum(const std::string& name, const std::vector<int>& parts,
                      const sbp::TensorType& type, const sbp::Layout& layout, int64_t stage) {
  if (parts.size() == 1) return parts[0];
  FunctionBuilder builder("add", plan_.stage_mesh);
  ops::ValueId total = -1;
  for (size_t i = 0; i < parts.size(); ++i) {
    ops::ValueId arg = builder.AddArg(absl::StrCat("x", i), type, layout);
    total = i == 0 ? arg : builder.Emit("add", {total, arg}, {{type, layout}}, {})[0];
  }
  builder.AddResult(total, Frequency::kMicroBatch);
  int out = NewValue(name, type, layout, stage, at_update());
  ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate, name, at_update());
  item.function = InternFunction(stage, builder);
  item.inputs = parts;
  item.outputs = {out};
  return out;
}

int ProgramItems::AddLossScaleFactor() {
  const std::optional<LossScaleSettings>& scale = plan_.settings.training.loss_scale;
  if (!Adapts(scale)) return -1;
  Variable variable;
  variable.name = "loss_scale/factor";
  variable.slot_of = "loss_scale";
  variable.type = {DType::kF32, {}};
  variable.init.mutable_uniform()->set_low(scale->factor);
  variable.init.mutable_uniform()->set_high(scale->factor);
  variable.layout = sbp::Broadcast(plan_.stage_mesh);
  const int value = NewValue(variable.name, variable.type, variable.layout, 0, at_update());
  variable.value = value;
  module_.values[value].variable = static_cast<int>(module_.variables.size());
  module_.variables.push_back(std::move(variable));
  return value;
}

int ProgramItems::AddLossSeed(int factor, int64_t stage) {
  const ProgramValue have = module_.values[factor];
  FunctionBuilder builder("loss_seed", plan_.stage_mesh);
  BuildLossSeed(plan_, &builder);
  const int there = Boxed(factor, have.layout, stage, after_update());
  const int seed = NewValue("loss_seed", have.type, have.layout, stage, after_update());
  ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate, "loss seed", after_update());
  item.function = InternFunction(stage, builder);
  item.inputs = {there};
  item.outputs = {seed};
  return seed;
}

void ProgramItems::AddLossScaleStep(int factor, int scale) {
  FunctionBuilder builder("loss_scale", plan_.stage_mesh);
  BuildLossScale(plan_, &builder);
  ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate, "loss scale", at_update());
  item.function = InternFunction(0, builder);
  item.inputs = {scale};
  item.outputs = {factor};
  item.states = {{"loss_scale/finite_steps", "loss_scale", module_.values[factor].layout}};
}

int ProgramItems::AddMean(const std::string& name, int value, Frequency frequency) {
  sbp::Layout layout = module_.values[value].layout;
  for (sbp::Sbp& split : layout) {  // a mean of partial maxima is no partial mean
    if (split.is_partial() && split.combiner != Combiner::kSum) split = sbp::Sbp::B();
  }
  value = Boxed(value, layout, module_.values[value].stage, Frequency::kMicroBatch);
  const ProgramValue have = module_.values[value];
  const int64_t count =
      plan_.micro_batches * (frequency == Frequency::kUpdate ? plan_.updates.every : 1);
  FunctionBuilder builder(absl::StrCat("metric.", name), plan_.stage_mesh);
  ops::ValueId x = builder.AddArg(name, have.type, have.layout);
  x = builder.Emit("scale", {x}, {{have.type, have.layout}},
                   {{"factor", 1.0 / static_cast<double>(count)}})[0];
  if (count > 1) x = builder.Emit("accumulate", {x}, {{have.type, have.layout}}, {})[0];
  builder.AddResult(x, Frequency::kStep);
  const int out = NewValue(name, have.type, have.layout, have.stage, frequency);
  ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kMetric, absl::StrCat("metric ", name),
                              Frequency::kMicroBatch);
  item.function = InternFunction(have.stage, builder);
  item.inputs = {value};
  item.outputs = {out};
  return out;
}

void ProgramItems::AddSink(const std::string& name, int value) {
  ProgramItem& sink = NewItem(ItemKind::kSink, PhaseKind::kMetric, absl::StrCat("report ", name),
                              module_.values[value].frequency);
  sink.feed = name;
  sink.inputs = {value};
}

}  // namespace weir::compiler
