#include "compiler/dims/without_names_testing.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/dims/dim_lists.h"
#include "compiler/job/import_graph.h"
#include "ops/defs/type_text.h"

namespace weir::compiler {
proto::Job WithoutNames(proto::Job job) {
  const ops::DimTable table = *ImportDimTable(job);
  std::vector<std::string> inputs;
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::TensorDecl& input : function.input()) inputs.push_back(input.type());
  }
  int made = 0;
  for (proto::Function& function : *job.mutable_graph()->mutable_function()) {
    for (const DimList& list : DimListsOf(&function)) {
      std::vector<std::string> items;
      const absl::StatusOr<std::vector<sbp::TensorDim>> dims = ops::ParseDims(list.dims(), table);
      for (const sbp::TensorDim& dim : *dims)
        items.push_back(absl::StrCat("_", made++, "=", dim.size));
      list.Replace(absl::StrJoin(items, ", "));
    }
  }
  for (proto::Function& function : *job.mutable_graph()->mutable_function()) {
    if (function.name() != job.graph().main()) continue;
    for (int i = 0; i < function.input_size(); ++i)
      function.mutable_input(i)->set_type(inputs[static_cast<size_t>(i)]);
  }
  return job;
}

}  // namespace weir::compiler
