#include "tools/train/job_variant.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/dims/decode_job.h"
#include "compiler/job/check_training.h"
#include "compiler/job/model_inputs.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

bool IsWindowOfTokens(const compiler::ModelInput& input) {
  return input.type.dims.size() == 2 && input.use.range.has_value() && input.use.range->of_rows;
}

absl::StatusOr<compiler::ModelInput> TokensOf(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<compiler::ModelInput> inputs,
                        compiler::ModelInputsOf(job, compiler::PlanMode::kGenerate));
  std::vector<std::string> found;
  const compiler::ModelInput* tokens = nullptr;
  for (const compiler::ModelInput& input : inputs) {
    if (!IsWindowOfTokens(input)) continue;
    found.push_back(input.name);
    tokens = &input;
  }
  if (found.size() == 1) return *tokens;
  return Rejected(
      {"W0070", absl::StrCat("function ", job.graph().main()),
       "a language model: one input i32[samples, window] that looks up rows of a table (embedding)",
       found.empty() ? "no such input" : absl::StrCat("inputs ", absl::StrJoin(found, ", ")),
       "generate works with the models of `weir zoo gpt` and `weir zoo llama`"});
}

// Leaves of the pipeline only the devices of its stages.
void ClearSchedule(proto::Job* job) {
  const proto::Pipeline before = job->pipeline();
  job->clear_pipeline();
  if (before.stage_mesh_size() > 0)
    *job->mutable_pipeline()->mutable_stage_mesh() = before.stage_mesh();
}

}  // namespace

proto::Job EvaluationJob(const proto::Job& job) {
  proto::Job variant = job;
  for (proto::Function& function : *variant.mutable_graph()->mutable_function()) {
    for (proto::Node& node : *function.mutable_node()) {
      if (node.op() != "dropout") continue;
      for (proto::NamedAttr& attr : *node.mutable_attr()) {
        if (attr.name() == "rate") attr.mutable_value()->set_f(0);
      }
    }
  }
  return variant;
}

bool EvaluatesAverages(const proto::Job& job) {
  return job.training().has_average() && job.training().average().evaluate();
}

weights::Values EvaluatedValues(const proto::Job& job, int64_t steps) {
  const bool are_set = compiler::UpdateRateOf(job.training()).OptimizerStep(steps) > 0;
  return weights::ValuesOf(EvaluatesAverages(job) && are_set);
}

proto::Job OutputsJob(const proto::Job& job, const std::vector<std::string>& outputs) {
  proto::Job variant = EvaluationJob(job);
  proto::Graph* const graph = variant.mutable_graph();
  graph->set_without_loss(true);
  graph->clear_loss();
  for (proto::Function& function : *graph->mutable_function()) {
    if (function.name() != graph->main() || outputs.empty()) continue;
    function.clear_output();
    for (const std::string& output : outputs) function.add_output(output);
  }
  variant.mutable_training()->set_micro_batches(1);
  // As in GenerationJob: no other schedule gains anything with one micro-batch.
  if (variant.pipeline().schedule() != proto::Pipeline::ONE_F_ONE_B) ClearSchedule(&variant);
  return variant;
}

absl::StatusOr<GenerationVariant> GenerationJob(const proto::Job& job, int64_t rows,
                                                GenerationDevices devices) {
  GenerationVariant generation;
  WEIR_ASSIGN_OR_RETURN(const compiler::ModelInput tokens, TokensOf(job));
  generation.input = tokens.name;
  generation.window = tokens.type.dims[1].size;
  generation.below = tokens.use.range->below;
  generation.job = EvaluationJob(job);
  proto::Job& variant = generation.job;
  if (devices == GenerationDevices::kOneDevice) {
    variant.clear_mesh();
    variant.clear_layout();
    variant.clear_pipeline();
  } else if (variant.pipeline().schedule() != proto::Pipeline::ONE_F_ONE_B ||
             variant.pipeline().place_size() > 0) {
    // All stages work on the one micro-batch in turn, so no other schedule gains anything. The cuts
    // of such a schedule may be those of more parts than stages. Places may name calls that only
    // the loss needs.
    ClearSchedule(&variant);
  }
  variant.mutable_training()->set_micro_batches(1);
  variant.mutable_training()->set_zero_stage(0);
  generation.written = variant;
  WEIR_ASSIGN_OR_RETURN(variant, compiler::WithSamples(variant, tokens.name, rows));
  return generation;
}

}  // namespace weir::train
