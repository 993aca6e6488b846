#include "tools/train/job_variant.h"

#include "runtime/base/status.h"
#include "tools/train/job_data.h"

namespace weir {

Job EvaluationJob(const Job& job) {
  Job variant = job;
  for (Function& function : *variant.mutable_graph()->mutable_function()) {
    for (Node& node : *function.mutable_node()) {
      if (node.op() != "dropout") continue;
      for (NamedAttr& attr : *node.mutable_attr()) {
        if (attr.name() == "rate") attr.mutable_value()->set_f(0);
      }
    }
  }
  return variant;
}

absl::StatusOr<Job> GenerationJob(const Job& job) {
  Job variant = EvaluationJob(job);
  bool reads_tokens = false;
  for (const Function& function : job.graph().function()) {
    for (const TensorDecl& input : function.input()) {
      reads_tokens |= function.name() == job.graph().main() && input.name() == "tokens";
    }
  }
  if (!reads_tokens || DimSize(job, "sequence", 0) < 1) {
    return Rejected({"W0070", "function " + job.graph().main(), "a language model: an input tokens, i32[batch, sequence]",
                     "no such input or dimension", "generate works with the models of `weir zoo gpt` and `weir zoo llama`"});
  }
  for (Dim& dim : *variant.mutable_graph()->mutable_dim()) {
    if (dim.name() != BatchDim(job)) continue;
    dim.set_size(1);
    dim.clear_unit();
  }
  variant.clear_mesh();
  variant.clear_layout();
  variant.clear_pipeline();
  variant.mutable_training()->set_micro_batches(1);
  variant.mutable_training()->set_zero_stage(0);
  return variant;
}

}  // namespace weir
