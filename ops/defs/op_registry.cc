#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/meant_ops.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"

namespace weir::ops {

const char* Name(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "int";
    case AttrKind::kReal: return "real";
    case AttrKind::kBool: return "bool";
    case AttrKind::kString: return "string";
    case AttrKind::kInts: return "ints";
  }
  return "?";
}
namespace {

std::map<std::string, OpDef>& Table() {
  static auto* table = new std::map<std::string, OpDef>();
  return *table;
}

const char* KindName(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return "an integer";
    case AttrKind::kReal: return "a number";
    case AttrKind::kBool: return "true or false";
    case AttrKind::kString: return "a string";
    case AttrKind::kInts: return "a list of integers";
  }
  return "?";
}

const char* FoundName(const AttrValue& value) {
  static constexpr const char* kNames[] = {"an integer", "a number", "true or false", "a string",
                                           "a list of integers"};
  return kNames[value.index()];
}

bool HasKind(const AttrValue& value, AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt: return std::holds_alternative<int64_t>(value);
    case AttrKind::kReal:
      return std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value);
    case AttrKind::kBool: return std::holds_alternative<bool>(value);
    case AttrKind::kString: return std::holds_alternative<std::string>(value);
    case AttrKind::kInts: return std::holds_alternative<std::vector<int64_t>>(value);
  }
  return false;
}

// "x, w, bias?" or "x..."
std::string OperandsText(const std::vector<OperandSchema>& operands) {
  if (operands.empty()) return "none";
  std::string text;
  for (const OperandSchema& operand : operands) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", operand.name,
                    operand.variadic   ? "..."
                    : operand.optional ? "?"
                                       : "");
  }
  return text;
}

absl::Status CheckCount(const OpSchema& schema, const std::vector<OperandSchema>& operands,
                        int found, const std::string& what, const std::string& code,
                        const std::string& where) {
  int least = 0;
  bool unbounded = false;
  for (const OperandSchema& operand : operands) {
    if (!operand.optional) ++least;
    unbounded = unbounded || operand.variadic;
  }
  int most = static_cast<int>(operands.size());
  if (found >= least && (unbounded || found <= most)) return absl::OkStatus();
  std::string count = unbounded       ? absl::StrCat("at least ", least)
                      : least == most ? absl::StrCat(least)
                                      : absl::StrCat(least, " to ", most);
  return Rejected({code, where,
                   absl::StrCat(count, " ", what, least == 1 && (unbounded || most == 1) ? "" : "s",
                                " of ", schema.name, " (", OperandsText(operands), ")"),
                   absl::StrCat(found), ""});
}

// Returns the attribute as a job writes it, with its meaning.
std::string Example(const AttrSchema& attr) {
  static constexpr const char* kValues[] = {"i: 1", "f: 0.5", "b: true", "s: \"...\"",
                                            "ints { values: [0, 1] }"};
  return absl::StrCat("attr { name: \"", attr.name, "\" value { ",
                      kValues[static_cast<int>(attr.kind)], " } }, ", attr.doc);
}

absl::Status CheckAttr(const OpSchema& schema, const AttrSchema& attr, Attributes* attrs,
                       const std::string& where) {
  auto it = attrs->map().find(attr.name);
  if (it == attrs->map().end()) {
    if (attr.fallback) {
      attrs->Set(attr.name, *attr.fallback);
      return absl::OkStatus();
    }
    return Rejected(
        {"W0305", where,
         absl::StrCat("attribute ", attr.name, " of ", schema.name, ", ", KindName(attr.kind)),
         "none", Example(attr)});
  }
  if (!HasKind(it->second, attr.kind)) {
    return Rejected(
        {"W0306", where,
         absl::StrCat(KindName(attr.kind), " as attribute ", attr.name, " of ", schema.name),
         FoundName(it->second), Example(attr)});
  }
  const double* real = std::get_if<double>(&it->second);
  if (real != nullptr && !std::isfinite(*real)) {
    return Rejected({"W0310", where,
                     absl::StrCat("a finite number as attribute ", attr.name, " of ", schema.name),
                     absl::StrCat(*real), Example(attr)});
  }
  return absl::OkStatus();
}

absl::Status CheckCountable(const std::string& op, const std::string& what,
                            const sbp::TensorType& type) {
  int64_t elements = NumElements(type.shape());
  if (elements >= 0 && elements <= std::numeric_limits<int64_t>::max() / 8) return absl::OkStatus();
  return Rejected({"W0313", "",
                   absl::StrCat(what, " of ", op, " whose bytes can be counted in 63 bits"),
                   ToText(type), "smaller dimensions"});
}

std::string OperandName(const std::vector<OperandSchema>& operands, size_t i) {
  if (operands.empty()) return "operand";
  if (i < operands.size() && !operands[i].variadic) return operands[i].name;
  return absl::StrCat(operands.back().name, " (", i, ")");
}

}  // namespace

void OpRegistry::Register(OpDef def) {
  // This wrapper makes the checks that every definition would otherwise have to make.
  def.infer = [schema = def.schema, infer = def.infer](
                  const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    WEIR_RETURN_IF_ERROR(CheckCount(schema, schema.inputs, static_cast<int>(in.inputs.size()),
                                    "input", "W0302", ""));
    for (size_t i = 0; i < in.inputs.size(); ++i) {
      WEIR_RETURN_IF_ERROR(
          CheckCountable(schema.name, OperandName(schema.inputs, i), in.inputs[i]));
    }
    WEIR_ASSIGN_OR_RETURN(std::vector<sbp::TensorType> outputs, infer(in));
    for (size_t i = 0; i < outputs.size(); ++i) {
      WEIR_RETURN_IF_ERROR(CheckCountable(schema.name, OperandName(schema.outputs, i), outputs[i]));
    }
    return outputs;
  };
  std::string name = def.schema.name;
  if (!Table().emplace(name, std::move(def)).second) {
    std::fprintf(stderr, "op \"%s\" is registered twice\n", name.c_str());
    std::abort();
  }
}

sbp::TensorDim IndexedDim(const IndexedAxis& index, const Attributes& attrs,
                          const std::vector<sbp::TensorType>& inputs,
                          const std::vector<sbp::TensorType>& outputs) {
  const std::vector<sbp::TensorDim>& dims =
      (index.side == IndexedAxis::Side::kInput ? inputs : outputs)[index.operand].dims;
  if (index.axis == IndexedAxis::kAttribute) return dims[attrs.Int("axis")];
  return index.axis >= 0 ? dims[index.axis] : dims[dims.size() + index.axis];
}

const OpDef* OpRegistry::Find(const std::string& name) {
  auto it = Table().find(name);
  return it == Table().end() ? nullptr : &it->second;
}

std::vector<std::string> OpRegistry::Names() {
  std::vector<std::string> names;
  for (const auto& [name, def] : Table()) names.push_back(name);
  return names;
}

absl::StatusOr<const OpDef*> OpRegistry::FindForUser(const std::string& name,
                                                     const std::string& where) {
  const OpDef* def = Find(name);
  if (def != nullptr && !def->schema.internal) return def;
  std::vector<std::string> names;
  for (const auto& [other, other_def] : Table()) {
    if (!other_def.schema.internal) names.push_back(other);
  }
  names.push_back("call");
  const std::string nearest = MeantOps(name, names);
  return Rejected({"W0301", where,
                   def == nullptr ? "an op (`weir ops` lists them)"
                                  : "an op that graphs may use (`weir ops` lists them)",
                   name.empty() ? "none" : absl::StrCat("\"", name, "\""),
                   nearest.empty() ? absl::StrCat(name.empty() ? "op: one of " : "one of ",
                                                  absl::StrJoin(names, ", "))
                                   : nearest});
}

absl::Status CheckSchema(const OpSchema& schema, int num_inputs, int num_outputs, Attributes* attrs,
                         const std::string& where) {
  WEIR_RETURN_IF_ERROR(CheckCount(schema, schema.inputs, num_inputs, "input", "W0302", where));
  WEIR_RETURN_IF_ERROR(CheckCount(schema, schema.outputs, num_outputs, "output", "W0303", where));
  std::vector<std::string> names;
  for (const AttrSchema& attr : schema.attrs) names.push_back(attr.name);
  for (const auto& [name, value] : attrs->map()) {
    bool known = false;
    for (const std::string& other : names) known = known || other == name;
    if (known) continue;
    std::string list;
    for (const std::string& other : names) absl::StrAppend(&list, list.empty() ? "" : ", ", other);
    return Rejected({"W0304", where,
                     absl::StrCat("an attribute of ", schema.name, " (",
                                  list.empty() ? "it has none" : list, ")"),
                     absl::StrCat("\"", name, "\""), Nearest(name, names)});
  }
  for (const AttrSchema& attr : schema.attrs)
    WEIR_RETURN_IF_ERROR(CheckAttr(schema, attr, attrs, where));
  return absl::OkStatus();
}

}  // namespace weir::ops
