#include "compiler/ir.h"

#include "absl/strings/str_cat.h"

namespace weir::compiler {

ValueId Function::AddValue(std::string name, TensorType type) {
  values.push_back(Value{std::move(name), std::move(type), {}, ""});
  return static_cast<ValueId>(values.size()) - 1;
}

int Function::ProducerOf(ValueId value) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId output : nodes[i].outputs) {
      if (output == value) return static_cast<int>(i);
    }
  }
  return -1;
}

int Function::ArgOf(ValueId value) const {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].value == value) return static_cast<int>(i);
  }
  return -1;
}

namespace {

std::string ValueText(const Function& function, ValueId id, const Mesh& mesh) {
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

}  // namespace

std::string ToText(const Function& function, const Mesh& mesh) {
  std::string text = absl::StrCat("function ", function.name, "\n");
  for (const Arg& arg : function.args) {
    absl::StrAppend(&text, "  ", KindText(arg.kind), " ", ValueText(function, arg.value, mesh), "\n");
  }
  for (const Node& node : function.nodes) {
    absl::StrAppend(&text, "  ");
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      absl::StrAppend(&text, i ? ", " : "", ValueText(function, node.outputs[i], mesh));
    }
    absl::StrAppend(&text, " = ", node.op, "(");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId id = node.inputs[i];
      absl::StrAppend(&text, i ? ", " : "", id < 0 ? "-" : absl::StrCat("%", function.values[id].name));
    }
    absl::StrAppend(&text, ")");
    if (!node.attrs.map().empty()) absl::StrAppend(&text, " ", ToText(node.attrs));
    if (!node.outputs.empty() && !function.values[node.outputs[0]].why.empty()) {
      absl::StrAppend(&text, "  # ", function.values[node.outputs[0]].why);
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
