#include "compiler/ir/ir.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::compiler {

ops::ValueId Function::AddValue(std::string value_name, sbp::TensorType type) {
  values.push_back(Value{std::move(value_name), std::move(type), {}, {}});
  return static_cast<ops::ValueId>(values.size()) - 1;
}

int Function::ProducerOf(ops::ValueId value) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ops::ValueId output : nodes[i].outputs) {
      if (output == value) return static_cast<int>(i);
    }
  }
  return -1;
}

int Function::ArgOf(ops::ValueId value) const {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].value == value) return static_cast<int>(i);
  }
  return -1;
}

size_t Function::ActivationsBefore(int arg) const {
  return static_cast<size_t>(std::count_if(args.begin(), args.begin() + arg, [](const Arg& before) {
    return before.kind != ArgKind::kParameter;
  }));
}

bool Function::IsFrozen(int arg) const {
  const auto frozen = [arg](const ParameterInfo& parameter) {
    return parameter.arg == arg && parameter.frozen;
  };
  return std::any_of(parameters.begin(), parameters.end(), frozen);
}

namespace {

std::string ValueText(const Function& function, ops::ValueId id, const sbp::Mesh& mesh) {
  if (id < 0) return "-";
  const Value& value = function.values[id];
  std::string text = absl::StrCat("%", value.name, ": ", ToText(value.type));
  if (!value.layout.empty()) absl::StrAppend(&text, " ", ToText(value.layout, mesh));
  return text;
}

const char* KindText(ArgKind kind) {
  switch (kind) {
    case ArgKind::kActivation: return "arg";
    case ArgKind::kParameter: return "parameter";
    case ArgKind::kFixed: return "fixed";
  }
  return "?";
}

const char* KindText(ItemKind kind) {
  switch (kind) {
    case ItemKind::kCall: return "call";
    case ItemKind::kBoxing: return "boxing";
    case ItemKind::kSource: return "source";
    case ItemKind::kSink: return "sink";
    case ItemKind::kKeep: return "keep";
  }
  return "?";
}

const char* FrequencyText(Frequency frequency) {
  switch (frequency) {
    case Frequency::kMicroBatch: return "";
    case Frequency::kStep: return " per step";
    case Frequency::kUpdate: return " per update";
    case Frequency::kAfterUpdate: return " after update";
  }
  return "?";
}

std::string ItemText(const Module& module, const ProgramItem& item, const sbp::Mesh& mesh) {
  std::string text;
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const ProgramValue& value = module.values[item.outputs[i]];
    absl::StrAppend(&text, i ? ", " : "", "%", value.name, ": ", ToText(value.type), " ",
                    ToText(value.layout, mesh), " @", value.stage);
  }
  absl::StrAppend(&text, item.outputs.empty() ? "" : " = ", KindText(item.kind));
  if (item.kind == ItemKind::kCall)
    absl::StrAppend(&text, " ", module.functions[item.function].name);
  absl::StrAppend(&text, "(");
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const ProgramValue& value = module.values[item.inputs[i]];
    absl::StrAppend(&text, i ? ", " : "", "%", value.name, " ", ToText(value.layout, mesh), " @",
                    value.stage);
  }
  absl::StrAppend(&text, ")", item.feed.empty() ? "" : " feed ", item.feed);
  for (size_t i = 0; i < item.states.size(); ++i) {
    absl::StrAppend(&text, i ? ", " : " state ", item.states[i].name, " ",
                    ToText(item.states[i].layout, mesh));
  }
  for (int output : item.outputs) {
    if (module.values[output].delay > 0)
      return absl::StrCat(text, FrequencyText(item.frequency), " read ",
                          module.values[output].delay, " later");
  }
  return absl::StrCat(text, FrequencyText(item.frequency));
}

}  // namespace

std::string ProgramText(const Module& module, const sbp::Mesh& mesh) {
  if (module.items.empty()) return "";
  std::string text = "program\n";
  for (const Variable& variable : module.variables) {
    absl::StrAppend(&text, "  variable ", variable.name, ": ", ToText(variable.type), " ",
                    ToText(variable.layout, mesh), " @", variable.stage,
                    variable.decay ? " decay" : "", variable.momentum > 0 ? " average" : "",
                    variable.group >= 0 ? absl::StrCat(" group ", variable.group) : "", "\n");
  }
  for (const ProgramItem& item : module.items)
    absl::StrAppend(&text, "  ", ItemText(module, item, mesh), "\n");
  return text;
}

std::string ToText(const Function& function, const sbp::Mesh& mesh) {
  std::string text = absl::StrCat("function ", function.name, "\n");
  for (const Arg& arg : function.args) {
    absl::StrAppend(&text, "  ", KindText(arg.kind), " ", ValueText(function, arg.value, mesh),
                    "\n");
  }
  for (const Node& node : function.nodes) {
    absl::StrAppend(&text, "  ");
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      absl::StrAppend(&text, i ? ", " : "", ValueText(function, node.outputs[i], mesh));
    }
    absl::StrAppend(&text, " = ", node.op, "(");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ops::ValueId id = node.inputs[i];
      absl::StrAppend(&text, i ? ", " : "",
                      id < 0 ? "-" : absl::StrCat("%", function.values[id].name));
    }
    absl::StrAppend(&text, ")");
    if (!node.attrs.map().empty()) absl::StrAppend(&text, " ", ToText(node.attrs));
    if (!node.outputs.empty() && !function.values[node.outputs[0]].why.empty()) {
      absl::StrAppend(&text, "  # ", ToText(function.values[node.outputs[0]].why, mesh));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const Result& result : function.results) {
    absl::StrAppend(&text, "  return ", result.per_step ? "per step " : "",
                    ValueText(function, result.value, mesh), "\n");
  }
  return text;
}

}  // namespace weir::compiler
