#include "compiler/job/model_inputs.h"

#include <map>

#include "compiler/job/import_graph.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::compiler {

absl::StatusOr<std::vector<ModelInput>> ModelInputsOf(const proto::Job& job, PlanMode mode) {
  WEIR_ASSIGN_OR_RETURN(const auto dims_of_step, ImportDimTable(job));
  WEIR_ASSIGN_OR_RETURN(const auto dims, ImportDims(job));
  WEIR_ASSIGN_OR_RETURN(const Module module, ImportGraph(job, dims, mode));
  std::map<std::string, InputUse> uses;
  for (const ModelValue& value : module.model.values) {
    if (value.call < 0) uses[value.name] = value.use;
  }
  std::vector<ModelInput> inputs;
  for (const weir::proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::TensorDecl& input : function.input()) {
      WEIR_ASSIGN_OR_RETURN(ops::DeclaredType declared,
                            ops::ParseDeclaredType(input.type(), dims_of_step));
      inputs.push_back({input.name(), std::move(declared.type), uses[input.name()]});
    }
  }
  return inputs;
}

}  // namespace weir::compiler
