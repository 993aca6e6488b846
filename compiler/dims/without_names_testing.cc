#include "compiler/dims/without_names_testing.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/import_graph.h"
#include "ops/defs/op_def.h"
#include "ops/defs/type_text.h"

namespace weir::compiler {
namespace {

bool ListsDims(const std::string& op, const std::string& attr) {
  const ops::OpDef* def = ops::OpRegistry::Find(op);
  if (def == nullptr) return false;
  for (const ops::AttrSchema& schema : def->schema.attrs) {
    if (schema.name == attr) return schema.lists_dims;
  }
  return false;
}

void VisitType(std::string* type, const std::function<void(std::string*)>& visit) {
  const size_t open = type->find('[');
  if (open == std::string::npos) return;
  std::string dims = type->substr(open + 1, type->rfind(']') - open - 1);
  visit(&dims);
  *type = absl::StrCat(type->substr(0, open), "[", dims, "]");
}

}  // namespace

void VisitDimLists(proto::Graph* graph, const std::function<void(std::string*)>& visit) {
  for (proto::Function& function : *graph->mutable_function()) {
    for (proto::TensorDecl& input : *function.mutable_input())
      VisitType(input.mutable_type(), visit);
    for (proto::Parameter& parameter : *function.mutable_parameter())
      VisitType(parameter.mutable_type(), visit);
    for (proto::Node& node : *function.mutable_node()) {
      for (proto::NamedAttr& attr : *node.mutable_attr()) {
        if (ListsDims(node.op(), attr.name())) visit(attr.mutable_value()->mutable_s());
      }
    }
  }
}

proto::Job WithoutNames(proto::Job job) {
  const ops::DimTable table = *ImportDimTable(job);
  std::vector<std::string> inputs;
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::TensorDecl& input : function.input()) inputs.push_back(input.type());
  }
  int made = 0;
  VisitDimLists(job.mutable_graph(), [&](std::string* text) {
    std::vector<std::string> items;
    const absl::StatusOr<std::vector<sbp::TensorDim>> dims = ops::ParseDims(*text, table);
    for (const sbp::TensorDim& dim : *dims)
      items.push_back(absl::StrCat("_", made++, "=", dim.size));
    *text = absl::StrJoin(items, ", ");
  });
  for (proto::Function& function : *job.mutable_graph()->mutable_function()) {
    if (function.name() != job.graph().main()) continue;
    for (int i = 0; i < function.input_size(); ++i)
      function.mutable_input(i)->set_type(inputs[static_cast<size_t>(i)]);
  }
  return job;
}

}  // namespace weir::compiler
