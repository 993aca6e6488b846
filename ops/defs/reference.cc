#include "ops/defs/reference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::ops {
namespace {

struct ValueText {
  std::string operator()(int64_t v) const { return absl::StrCat(v); }
  std::string operator()(double v) const { return absl::StrCat(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const { return absl::StrCat("\"", v, "\""); }
  std::string operator()(const std::vector<int64_t>& v) const {
    return absl::StrCat("[", absl::StrJoin(v, ", "), "]");
  }
};

std::string Mark(const OperandSchema& operand) {
  return absl::StrCat(operand.name, operand.variadic ? "..." : operand.optional ? "?" : "");
}

std::string Names(const std::vector<OperandSchema>& operands) {
  return absl::StrJoin(operands, ", ",
                       [](std::string* out, const OperandSchema& o) { out->append(Mark(o)); });
}

// Appends rows of two columns under a heading; appends nothing if there are no rows.
void AppendTable(const std::string& heading,
                 const std::vector<std::pair<std::string, std::string>>& rows, std::string* text) {
  if (rows.empty()) return;
  size_t width = 0;
  for (const auto& [name, doc] : rows) width = std::max(width, name.size());
  absl::StrAppend(text, "\n", heading, "\n");
  for (const auto& [name, doc] : rows) {
    absl::StrAppend(text, "  ", name, std::string(width - name.size() + 2, ' '), doc, "\n");
  }
}

void AppendOperands(const std::string& heading, const std::vector<OperandSchema>& operands,
                    std::string* text) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const OperandSchema& operand : operands) rows.emplace_back(Mark(operand), operand.doc);
  AppendTable(heading, rows, text);
}

}  // namespace

std::string DescribeOp(const OpDef& def) {
  const OpSchema& schema = def.schema;
  std::string text = absl::StrCat(
      schema.name, "(", Names(schema.inputs), ") -> ", Names(schema.outputs),
      schema.internal ? "   [internal: made by the compiler]" : "", "\n", schema.doc, "\n");
  AppendOperands("inputs", schema.inputs, &text);
  AppendOperands("outputs", schema.outputs, &text);
  std::vector<std::pair<std::string, std::string>> rows;
  for (const AttrSchema& attr : schema.attrs) {
    std::string fallback = attr.fallback
                               ? absl::StrCat(" = ", std::visit(ValueText(), *attr.fallback))
                               : " (required)";
    rows.emplace_back(absl::StrCat(attr.name, ": ", Name(attr.kind), fallback), attr.doc);
  }
  AppendTable("attributes", rows, &text);
  AppendTable("layouts", {{"factors", schema.factors}}, &text);
  absl::StrAppend(&text, "\ngradient\n  ", def.gradient ? "yes" : "none", "\n");
  return text;
}

std::string ListUserOps() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& name : OpRegistry::Names()) {
    const OpDef* def = OpRegistry::Find(name);
    if (!def->schema.internal) rows.emplace_back(name, def->schema.doc);
  }
  size_t width = 0;
  for (const auto& [name, doc] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, doc] : rows)
    absl::StrAppend(&text, name, std::string(width - name.size() + 2, ' '), doc, "\n");
  return text;
}

}  // namespace weir::ops
