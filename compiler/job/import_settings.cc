#include "compiler/job/import_settings.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/pipeline_schedule.h"
#include "compiler/job/check_training.h"
#include "runtime/base/product_codec.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::StatusOr<ScheduleKind> ScheduleKindOf(const proto::Pipeline& pipeline) {
  switch (pipeline.schedule()) {
    case proto::Pipeline::ONE_F_ONE_B: return ScheduleKind::kOneFOneB;
    case proto::Pipeline::GPIPE: return ScheduleKind::kGpipe;
    case proto::Pipeline::INTERLEAVED: return ScheduleKind::kInterleaved;
    case proto::Pipeline::ZERO_BUBBLE: return ScheduleKind::kZeroBubble;
    default: break;
  }
  return Rejected({"W0476", "pipeline.schedule", "ONE_F_ONE_B, GPIPE, INTERLEAVED or ZERO_BUBBLE",
                   absl::StrCat(static_cast<int>(pipeline.schedule())), ""});
}

absl::StatusOr<PipelineSettings> ImportPipeline(const proto::Pipeline& pipeline) {
  PipelineSettings settings;
  WEIR_ASSIGN_OR_RETURN(settings.schedule, ScheduleKindOf(pipeline));
  settings.virtual_stages = pipeline.virtual_stages();
  settings.cut.assign(pipeline.cut().begin(), pipeline.cut().end());
  const bool interleaved = settings.schedule == ScheduleKind::kInterleaved;
  const int64_t parts = settings.virtual_stages;
  if (parts >= 0 && parts <= kVirtualStagesMax && (interleaved || parts <= 1)) return settings;
  return Rejected(
      {"W0476", "pipeline.virtual_stages",
       interleaved ? absl::StrCat("0 (which is 2) to ", kVirtualStagesMax)
                   : absl::StrCat("0 or 1 with schedule ",
                                  proto::Pipeline::ScheduleKind_Name(pipeline.schedule())),
       absl::StrCat(parts), interleaved || parts < 0 ? "" : "pipeline.schedule=INTERLEAVED"});
}

TrainingSettings ImportTraining(const proto::Training& training) {
  TrainingSettings settings;
  settings.seed = training.seed();
  settings.zero_stage = training.zero_stage();
  if (!training.zero_axis().empty()) settings.zero_axis = training.zero_axis();
  if (training.precision() == proto::Training::BF16) settings.precision = DType::kBF16;
  settings.clip_norm = training.optimizer().clip_norm();
  settings.learning_rates = LearningRatesOf(training);
  if (training.optimizer().has_sgd()) {
    const proto::Optimizer::Sgd& sgd = training.optimizer().sgd();
    settings.optimizer = SgdSettings{sgd.momentum(), sgd.weight_decay()};
    return settings;
  }
  const proto::Optimizer::AdamW& from = training.optimizer().adamw();
  AdamWSettings adamw;
  if (from.beta1() > 0) adamw.beta1 = from.beta1();
  if (from.beta2() > 0) adamw.beta2 = from.beta2();
  if (from.epsilon() > 0) adamw.epsilon = from.epsilon();
  adamw.weight_decay = from.weight_decay();
  settings.optimizer = adamw;
  return settings;
}

RegisterChoice RegisterChoiceOf(proto::Runtime::Registers registers) {
  switch (registers) {
    case proto::Runtime::SOLVED: return RegisterChoice::kSolved;
    case proto::Runtime::ONE: return RegisterChoice::kOne;
    case proto::Runtime::TWO: return RegisterChoice::kTwo;
    case proto::Runtime::TWICE_STAGES: return RegisterChoice::kTwiceStages;
    default: return RegisterChoice::kSchedule;
  }
}

RuntimeSettings ImportRuntime(const proto::Runtime& runtime) {
  RuntimeSettings settings;
  settings.device = runtime.device();
  settings.device_queues = runtime.device_queues();
  settings.device_depth = runtime.device_depth();
  settings.chunk_bytes_max = runtime.chunk_bytes_max();
  settings.registers = RegisterChoiceOf(runtime.registers());
  if (runtime.collectives() == proto::Runtime::LOCAL ||
      runtime.collectives() == proto::Runtime::NCCL)
    settings.collectives = Collectives::kGroups;
  settings.collective_kib_min = runtime.collective_kib_min();
  settings.debug_register_slots = runtime.debug_register_slots();
  settings.register_bytes_max = runtime.register_bytes_max();
  if (runtime.gather_ahead() != 0) settings.gather_ahead = runtime.gather_ahead();
  return settings;
}

RuleScope ScopeOf(proto::Rule::Scope scope) {
  switch (scope) {
    case proto::Rule::ACTIVATIONS: return RuleScope::kActivations;
    case proto::Rule::PARAMETERS: return RuleScope::kParameters;
    default: return RuleScope::kAll;
  }
}

// Returns "one of batch, heads and 3 more" for a message, which shows the first names.
std::string DimsOfJob(const std::vector<std::string>& names) {
  constexpr size_t kNamesShown = 12;
  if (names.empty()) return "a dim table in the graph; `weir dims` names dimensions";
  std::string text = "one of ";
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  if (names.size() > kNamesShown)
    absl::StrAppend(&text, " and ", names.size() - kNamesShown, " more");
  return text;
}

}  // namespace

absl::StatusOr<JobSettings> ImportSettings(const proto::Job& job) {
  JobSettings settings;
  WEIR_ASSIGN_OR_RETURN(settings.pipeline, ImportPipeline(job.pipeline()));
  settings.training = ImportTraining(job.training());
  settings.runtime = ImportRuntime(job.runtime());
  return settings;
}

absl::StatusOr<ProductChoices> ImportProducts(const proto::Job& job) {
  return ProductChoicesOf(job.runtime().product(), "runtime.product");
}

absl::StatusOr<LayoutRules> ImportRules(const proto::Job& job, const sbp::Mesh& stage_mesh,
                                        const std::map<std::string, sbp::TensorDim>& dims) {
  if (job.rules() == proto::Job::AUTO) {
    return Rejected({"W0760", "rules: AUTO", "the rules that a search has found for the mesh",
                     "a job to which nobody has added them",
                     "weir search JOB -o FILE, which writes the job with the rules found"});
  }
  LayoutRules rules(stage_mesh);
  std::vector<std::string> names;
  for (const auto& [name, dim] : dims) names.push_back(name);
  for (const proto::Rule& rule : job.rule()) {
    if (dims.count(rule.dim()) == 0) {
      std::string near = Nearest(rule.dim(), names);
      return Rejected({"W0481", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                       "a dimension of the graph's dim table", absl::StrCat("\"", rule.dim(), "\""),
                       near.empty() ? DimsOfJob(names) : absl::StrCat("dim: \"", near, "\"")});
    }
    if (rule.axis() == sbp::kPipelineAxis) {
      return Rejected({"W0482", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                       "an axis that layouts may use", "the pipeline axis \"pp\"",
                       "cut the model with pipeline { cut: ... } instead"});
    }
    if (rule.axis().empty()) {
      return Rejected({"W0485", absl::StrCat("rule ", rule.dim(), " -> "),
                       "the axis that the dimension is split over", "none",
                       "axis: \"dp\"; a rule about an axis that the mesh lacks does nothing"});
    }
    const int axis = stage_mesh.AxisIndex(rule.axis());
    if (axis >= 0 && stage_mesh.size(axis) > 1)
      rules.AddRule(rule.dim(), axis, ScopeOf(rule.scope()));
  }
  for (const proto::LayoutOverride& entry : job.layout()) {
    absl::StatusOr<sbp::Layout> layout = sbp::ParseLayout(entry.sbp(), stage_mesh);
    const std::string where = absl::StrCat("layout of \"", entry.tensor(), "\"");
    if (!layout.ok()) return At(where, layout.status());
    if (!rules.AddOverride(entry.tensor(), *std::move(layout)))
      return Rejected({"W0484", where, "one layout for a tensor", "two", "remove one of them"});
  }
  return rules;
}

}  // namespace weir::compiler
