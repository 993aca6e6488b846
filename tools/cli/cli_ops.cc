// weir ops: shows the catalogue of operations, from the registry itself.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "ops/defs/meant_ops.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"
#include "tools/cli/cli_verbs.h"

namespace weir::cli {
namespace {

struct OpsArguments {
  std::string name;
  bool all = false;
  bool json = false;
};

std::string ValueText(const std::string& name, const AttrValue& value) {
  std::string text = ToText(Attributes({{name, value}}));  // "{name: value}"
  size_t colon = text.find(": ");
  return text.substr(colon + 2, text.size() - colon - 3);
}

std::string OperandNames(const std::vector<ops::OperandSchema>& operands) {
  std::vector<std::string> names;
  for (const ops::OperandSchema& operand : operands) {
    names.push_back(
        absl::StrCat(operand.name, operand.optional ? "?" : "", operand.variadic ? "..." : ""));
  }
  return absl::StrJoin(names, ", ");
}

// Returns "indices along dimension 0 of table".
std::string IndexText(const ops::OpSchema& schema, const ops::OperandSchema& operand) {
  const ops::IndexedAxis& index = *operand.index;
  const std::vector<ops::OperandSchema>& of =
      index.side == ops::IndexedAxis::Side::kInput ? schema.inputs : schema.outputs;
  return absl::StrCat("indices along ",
                      index.axis == ops::IndexedAxis::kAttribute ? "dimension `axis`"
                      : index.axis >= 0  ? absl::StrCat("dimension ", index.axis)
                      : index.axis == -1 ? "the last dimension"
                                         : absl::StrCat("dimension ", index.axis, " from the end"),
                      " of ", of[index.operand].name, ": from 0 to below its size",
                      operand.ignored_by.empty() ? "" : absl::StrCat(", or ", operand.ignored_by),
                      ", checked");
}

void PrintIndices(const ops::OpSchema& schema, std::ostream& out) {
  for (const ops::OperandSchema& operand : schema.inputs) {
    if (operand.index.has_value())
      out << absl::StrFormat("  %-14s %s\n", operand.name, IndexText(schema, operand));
  }
}

void PrintOperands(const std::string& title, const std::vector<ops::OperandSchema>& operands,
                   std::ostream& out) {
  if (operands.empty()) return;
  out << title << "\n";
  for (const ops::OperandSchema& operand : operands) {
    std::string note = absl::StrCat(operand.optional ? " (optional)" : "",
                                    operand.variadic ? " (one or more)" : "");
    out << absl::StrFormat("  %-14s %s%s\n", operand.name, operand.doc, note);
  }
}

void PrintOp(const ops::OpSchema& schema, bool has_gradient, std::ostream& out) {
  out << schema.name << "(" << OperandNames(schema.inputs) << ") -> "
      << OperandNames(schema.outputs) << "\n"
      << schema.doc << "\n\n";
  PrintOperands("inputs", schema.inputs, out);
  PrintOperands("outputs", schema.outputs, out);
  if (!schema.attrs.empty()) out << "attributes\n";
  for (const ops::AttrSchema& attr : schema.attrs) {
    std::string fallback =
        attr.fallback.has_value() ? "default " + ValueText(attr.name, *attr.fallback) : "required";
    out << absl::StrFormat("  %-14s %s (%s, %s)\n", attr.name, attr.doc, Name(attr.kind), fallback);
  }
  if (std::any_of(schema.inputs.begin(), schema.inputs.end(),
                  [](const ops::OperandSchema& operand) { return operand.index.has_value(); })) {
    out << "indices\n";
    PrintIndices(schema, out);
  }
  if (!schema.factors.empty()) out << "factors\n  " << schema.factors << "\n";
  out << "gradient\n  " << (has_gradient ? "yes" : "none") << "\n";
}

nlohmann::ordered_json OperandsJson(const ops::OpSchema& schema,
                                    const std::vector<ops::OperandSchema>& operands) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ops::OperandSchema& operand : operands) {
    nlohmann::ordered_json& entry =
        list.emplace_back(nlohmann::ordered_json{{"name", operand.name},
                                                 {"doc", operand.doc},
                                                 {"optional", operand.optional},
                                                 {"variadic", operand.variadic}});
    if (operand.index.has_value()) entry["index"] = IndexText(schema, operand);
  }
  return list;
}

// Returns the schema with what a builder of graphs needs: operands, attributes and defaults.
nlohmann::ordered_json OpJson(const ops::OpSchema& schema, bool has_gradient) {
  nlohmann::ordered_json attrs = nlohmann::ordered_json::array();
  for (const ops::AttrSchema& attr : schema.attrs) {
    nlohmann::ordered_json& entry =
        attrs.emplace_back(nlohmann::ordered_json{{"name", attr.name},
                                                  {"kind", Name(attr.kind)},
                                                  {"doc", attr.doc},
                                                  {"lists_dims", attr.lists_dims},
                                                  {"required", !attr.fallback.has_value()}});
    if (!attr.fallback.has_value()) continue;
    std::visit([&entry](const auto& value) { entry["default"] = value; }, *attr.fallback);
  }
  return {{"name", schema.name},
          {"doc", schema.doc},
          {"inputs", OperandsJson(schema, schema.inputs)},
          {"outputs", OperandsJson(schema, schema.outputs)},
          {"attributes", std::move(attrs)},
          {"factors", schema.factors},
          {"gradient", has_gradient},
          {"internal", schema.internal}};
}

absl::Status ListOps(const OpsArguments& arguments, std::ostream& out) {
  std::vector<std::string> names = ops::OpRegistry::Names();
  std::sort(names.begin(), names.end());
  if (!arguments.name.empty()) {
    const ops::OpDef* def = ops::OpRegistry::Find(arguments.name);
    if (def == nullptr) {
      const std::string nearest = ops::MeantOps(arguments.name, names);
      return Rejected({"W0009", "weir ops", "the name of an op", arguments.name,
                       nearest.empty() ? "weir ops" : nearest});
    }
    const bool has_gradient = static_cast<bool>(def->gradient);
    if (arguments.json) {
      out << OpJson(def->schema, has_gradient).dump(2) << "\n";
    } else {
      PrintOp(def->schema, has_gradient, out);
    }
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& name : names) {
    const ops::OpDef& def = *ops::OpRegistry::Find(name);
    if (def.schema.internal && !arguments.all) continue;
    if (arguments.json) {
      json.push_back(OpJson(def.schema, static_cast<bool>(def.gradient)));
    } else {
      out << absl::StrFormat("%-28s %s\n", def.schema.name, def.schema.doc);
    }
  }
  if (arguments.json) out << json.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddOpsVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<OpsArguments>();
  CLI::App* verb =
      AddVerb(app, context, "ops", "List the operations a graph may use, or explain one",
              "  weir ops\n  weir ops attention\n  weir ops --all\n  weir ops --json",
              [arguments, context] { return ListOps(*arguments, *context->out); });
  verb->add_option("NAME", arguments->name, "The op to explain");
  verb->add_flag("--all", arguments->all, "Include ops that only the compiler uses");
  verb->add_flag("--json", arguments->json, "Print operands, attributes and defaults as JSON");
}

}  // namespace weir::cli
