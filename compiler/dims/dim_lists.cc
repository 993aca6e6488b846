#include "compiler/dims/dim_lists.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/job/import_function.h"
#include "ops/defs/op_def.h"

namespace weir::compiler {

std::string DimsOf(const std::string& type) {
  const size_t open = type.find('['), close = type.rfind(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return type.substr(open + 1, close - open - 1);
}

std::string DimList::dims() const { return in_type ? DimsOf(*text) : *text; }

void DimList::Replace(const std::string& dims) const {
  *text = in_type ? absl::StrCat(text->substr(0, text->find('[')), "[", dims, "]") : dims;
}

std::vector<DimList> DimListsOf(proto::Function* function) {
  std::vector<DimList> lists;
  const auto add_type = [&](std::string* type, const char* what, const std::string& name) {
    if (type->find('[') == std::string::npos) return;
    lists.push_back(
        {type, true, absl::StrCat(FunctionWhere(function->name()), ", ", what, " ", name)});
  };
  for (proto::TensorDecl& input : *function->mutable_input())
    add_type(input.mutable_type(), "input", input.name());
  for (proto::Parameter& parameter : *function->mutable_parameter())
    add_type(parameter.mutable_type(), "parameter", parameter.name());
  for (proto::Node& node : *function->mutable_node()) {
    for (proto::NamedAttr& attr : *node.mutable_attr()) {
      if (!ListsDims(node.op(), attr.name())) continue;
      lists.push_back({attr.mutable_value()->mutable_s(), false,
                       absl::StrCat(FunctionWhere(function->name()), ", node ", node.name())});
    }
  }
  return lists;
}

bool ListsDims(const std::string& op, const std::string& attr) {
  const ops::OpDef* def = ops::OpRegistry::Find(op);
  if (def == nullptr) return false;
  return std::any_of(
      def->schema.attrs.begin(), def->schema.attrs.end(),
      [&](const ops::AttrSchema& schema) { return schema.name == attr && schema.lists_dims; });
}

}  // namespace weir::compiler
