#include "tools/zoo/zoo_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "sbp/mesh.h"

namespace weir::zoo {

absl::Status CheckPositive(const std::string& flag, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return Rejected({"W0060", "--" + flag, "at least 1", absl::StrCat(value), ""});
}

absl::Status CheckTransformer(const TransformerOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckPositive("layers", options.layers));
  WEIR_RETURN_IF_ERROR(CheckPositive("hidden", options.hidden));
  WEIR_RETURN_IF_ERROR(CheckPositive("heads", options.heads));
  WEIR_RETURN_IF_ERROR(CheckPositive("vocab", options.vocab));
  WEIR_RETURN_IF_ERROR(CheckPositive("sequence", options.sequence));
  if (options.hidden % options.heads != 0) {
    return Rejected(
        {"W0061", "--hidden", absl::StrCat("a multiple of --heads ", options.heads),
         absl::StrCat(options.hidden),
         absl::StrCat("--hidden ", (options.hidden / options.heads + 1) * options.heads)});
  }
  return absl::OkStatus();
}

absl::Status WritePipeline(const TrainingOptions& options, proto::Job* job) {
  const std::vector<std::pair<std::string, proto::Pipeline::ScheduleKind>> kinds = {
      {"1f1b", proto::Pipeline::ONE_F_ONE_B},
      {"gpipe", proto::Pipeline::GPIPE},
      {"interleaved", proto::Pipeline::INTERLEAVED},
      {"zero-bubble", proto::Pipeline::ZERO_BUBBLE}};
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds) {
    names.push_back(name);
    if (name != options.schedule) continue;
    if (options.virtual_stages < 0 ||
        (options.virtual_stages > 1 && kind != proto::Pipeline::INTERLEAVED)) {
      return Rejected({"W0061", "--virtual-stages",
                       kind == proto::Pipeline::INTERLEAVED
                           ? "0 or more"
                           : "0 or 1 unless --schedule is interleaved",
                       absl::StrCat(options.virtual_stages), ""});
    }
    if (kind != proto::Pipeline::ONE_F_ONE_B) job->mutable_pipeline()->set_schedule(kind);
    if (options.virtual_stages > 0)
      job->mutable_pipeline()->set_virtual_stages(options.virtual_stages);
    return absl::OkStatus();
  }
  return Rejected({"W0061", "--schedule", "1f1b, gpipe, interleaved or zero-bubble",
                   options.schedule, Nearest(options.schedule, names)});
}

absl::Status WriteTraining(const TrainingOptions& options, proto::Job* job) {
  WEIR_RETURN_IF_ERROR(CheckPositive("batch", options.batch));
  WEIR_RETURN_IF_ERROR(CheckPositive("micro-batches", options.micro_batches));
  WEIR_RETURN_IF_ERROR(CheckPositive("steps", options.steps));
  WEIR_RETURN_IF_ERROR(CheckPositive("update-every", options.update_every));
  if (options.gradient_delay < 0)
    return Rejected(
        {"W0060", "--gradient-delay", "at least 0", absl::StrCat(options.gradient_delay), ""});
  if (options.batch % options.micro_batches != 0) {
    return Rejected({"W0061", "--batch",
                     absl::StrCat("a multiple of --micro-batches ", options.micro_batches),
                     absl::StrCat(options.batch), ""});
  }
  WEIR_ASSIGN_OR_RETURN(sbp::Mesh mesh, sbp::Mesh::Parse(options.mesh));
  job->mutable_mesh();
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    proto::MeshAxisSpec* spec = job->mutable_mesh()->add_axis();
    spec->set_name(axis.name);
    spec->set_size(axis.size);
  }
  WEIR_RETURN_IF_ERROR(WritePipeline(options, job));
  proto::Training* training = job->mutable_training();
  training->set_steps(options.steps);
  training->set_micro_batches(options.micro_batches);
  if (options.update_every > 1) training->set_update_every(options.update_every);
  training->set_gradient_delay(options.gradient_delay);
  training->set_zero_stage(static_cast<int32_t>(options.zero_stage));
  proto::Optimizer::AdamW* adamw = training->mutable_optimizer()->mutable_adamw();
  adamw->set_beta1(0.9);
  adamw->set_beta2(0.95);
  adamw->set_epsilon(1e-8);
  adamw->set_weight_decay(options.weight_decay);
  training->mutable_optimizer()->set_clip_norm(options.clip_norm);
  proto::Schedule* schedule = training->mutable_schedule();
  schedule->set_learning_rate(options.learning_rate);
  schedule->set_warmup_steps(options.warmup_steps >= 0 ? options.warmup_steps
                                                       : options.steps / options.update_every / 20);
  schedule->set_decay(proto::Schedule::COSINE);
  schedule->set_min_learning_rate(options.min_learning_rate >= 0 ? options.min_learning_rate
                                                                 : options.learning_rate / 10);
  if (options.precision != "f32" && options.precision != "bf16" && options.precision != "f16")
    return Rejected({"W0061", "--precision", "f32, bf16 or f16", options.precision, ""});
  for (proto::Function& function : *job->mutable_graph()->mutable_function()) {
    if (options.recompute && function.name() != job->graph().main()) function.mutable_keep();
  }
  training->set_precision(options.precision == "bf16"  ? proto::Training::BF16
                          : options.precision == "f16" ? proto::Training::F16
                                                       : proto::Training::F32);
  training->set_seed(options.seed);
  training->set_eval_every(options.eval_every);
  return absl::OkStatus();
}

void WriteTextData(const TrainingOptions& options, proto::Job* job) {
  if (options.data.empty()) {
    job->mutable_data()->mutable_synthetic();
    return;
  }
  job->mutable_data()->mutable_text()->set_path(options.data);
  job->mutable_data()->mutable_text()->set_held_out(options.held_out);
}

void AddRule(proto::Job* job, const std::string& dim, const std::string& axis,
             proto::Rule::Scope scope) {
  proto::Rule* rule = job->add_rule();
  rule->set_dim(dim);
  rule->set_axis(axis);
  rule->set_scope(scope);
}

void AddTransformerRules(SequenceParallel sequence_parallel, bool grouped_heads, proto::Job* job) {
  std::vector<std::string> heads = {"heads", "head_count"};
  if (grouped_heads) heads.insert(heads.end(), {"kv_heads", "kv_head_count"});
  AddRule(job, "batch", "dp");
  for (const std::string& dim : heads) AddRule(job, dim, "tp");
  AddRule(job, "ffn", "tp");
  AddRule(job, "vocab", "tp");
  if (sequence_parallel == SequenceParallel::kMegatron)
    AddRule(job, "sequence", "tp", proto::Rule::ACTIVATIONS);
  if (sequence_parallel == SequenceParallel::kUlysses) {
    AddRule(job, "sequence", "sp", proto::Rule::ACTIVATIONS);
    for (const std::string& dim : heads) AddRule(job, dim, "sp", proto::Rule::ACTIVATIONS);
  }
}

}  // namespace weir::zoo
