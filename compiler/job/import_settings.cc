#include "compiler/job/import_settings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/pipeline_schedule.h"
#include "compiler/job/check_training.h"
#include "runtime/base/product_codec.h"
#include "runtime/base/status.h"
#include "sbp/mesh.h"

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

// Bounds for the time in which places find their calls.
constexpr int kPlacesMax = 1024;
constexpr size_t kPatternMax = 1000;  // characters

absl::Status ImportPlaces(const proto::Pipeline& pipeline, PipelineSettings* settings) {
  if (pipeline.place_size() > kPlacesMax) {
    return Rejected({"W0457", "pipeline.place", absl::StrCat("at most ", kPlacesMax, " entries"),
                     absl::StrCat(pipeline.place_size()),
                     "a star in a name stands for any characters: call: \"image.*\""});
  }
  for (const proto::Pipeline::Place& place : pipeline.place()) {
    if (place.call().empty() == place.function().empty()) {
      return Rejected({"W0453", "pipeline.place", "the name of a call or of a function",
                       place.call().empty()
                           ? "neither"
                           : absl::StrCat("call \"", place.call(), "\" and function \"",
                                          place.function(), "\""),
                       "place { call: \"image.*\" stage: 0 }"});
    }
    if (std::max(place.call().size(), place.function().size()) > kPatternMax) {
      return Rejected({"W0453", "pipeline.place",
                       absl::StrCat("a name of at most ", kPatternMax, " characters"),
                       absl::StrCat(std::max(place.call().size(), place.function().size())), ""});
    }
    settings->places.push_back({place.call(), place.function(), place.stage()});
  }
  if (settings->places.empty()) return absl::OkStatus();
  if (!settings->cut.empty()) {
    return Rejected({"W0457", "pipeline.place", "either cuts or places",
                     absl::StrCat(settings->cut.size(), " of pipeline.cut beside ",
                                  settings->places.size(), " of pipeline.place"),
                     "remove pipeline.cut: the places say where each call lies"});
  }
  if (settings->schedule == ScheduleKind::kInterleaved) {
    return Rejected({"W0457", "pipeline.place",
                     "a schedule with one part on each stage: ONE_F_ONE_B, GPIPE or ZERO_BUBBLE",
                     "INTERLEAVED, which cuts the calls into a chain of parts",
                     "pipeline.schedule=ONE_F_ONE_B"});
  }
  return absl::OkStatus();
}

absl::StatusOr<PipelineSettings> ImportPipeline(const proto::Pipeline& pipeline) {
  PipelineSettings settings;
  WEIR_ASSIGN_OR_RETURN(settings.schedule, ScheduleKindOf(pipeline));
  settings.virtual_stages = pipeline.virtual_stages();
  settings.cut.assign(pipeline.cut().begin(), pipeline.cut().end());
  WEIR_RETURN_IF_ERROR(ImportPlaces(pipeline, &settings));
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

AdamWSettings ImportAdamW(const proto::Optimizer::AdamW& from) {
  AdamWSettings adamw;
  if (from.has_beta1()) adamw.beta1 = from.beta1();
  if (from.has_beta2()) adamw.beta2 = from.beta2();
  if (from.has_epsilon()) adamw.epsilon = from.epsilon();
  adamw.weight_decay = from.weight_decay();
  return adamw;
}

LionSettings ImportLion(const proto::Optimizer::Lion& from) {
  LionSettings lion;
  if (from.has_beta1()) lion.beta1 = from.beta1();
  if (from.has_beta2()) lion.beta2 = from.beta2();
  lion.weight_decay = from.weight_decay();
  return lion;
}

LambSettings ImportLamb(const proto::Optimizer::Lamb& from) {
  LambSettings lamb;
  if (from.has_beta1()) lamb.beta1 = from.beta1();
  if (from.has_beta2()) lamb.beta2 = from.beta2();
  if (from.has_epsilon()) lamb.epsilon = from.epsilon();
  lamb.weight_decay = from.weight_decay();
  return lamb;
}

AdafactorSettings ImportAdafactor(const proto::Optimizer::Adafactor& from) {
  AdafactorSettings adafactor;
  if (from.has_beta2_decay()) adafactor.beta2_decay = from.beta2_decay();
  if (from.has_epsilon1()) adafactor.epsilon1 = from.epsilon1();
  if (from.has_epsilon2()) adafactor.epsilon2 = from.epsilon2();
  if (from.has_clip_threshold()) adafactor.clip_threshold = from.clip_threshold();
  adafactor.weight_decay = from.weight_decay();
  return adafactor;
}

MuonSettings ImportMuon(const proto::Optimizer::Muon& from) {
  MuonSettings muon;
  if (from.has_momentum()) muon.momentum = from.momentum();
  if (from.has_epsilon()) muon.epsilon = from.epsilon();
  if (from.has_iterations()) muon.iterations = from.iterations();
  muon.nesterov = !from.plain();
  muon.weight_decay = from.weight_decay();
  muon.adjusts_rms = from.adjust() == proto::Optimizer::Muon::RMS;
  muon.flattens = from.flatten();
  muon.others = ImportAdamW(from.adamw());
  return muon;
}

OptimizerSettings ImportOptimizer(const proto::Optimizer& from) {
  switch (from.kind_case()) {
    case proto::Optimizer::kSgd:
      return SgdSettings{from.sgd().momentum(), from.sgd().weight_decay()};
    case proto::Optimizer::kLion: return ImportLion(from.lion());
    case proto::Optimizer::kLamb: return ImportLamb(from.lamb());
    case proto::Optimizer::kAdafactor: return ImportAdafactor(from.adafactor());
    case proto::Optimizer::kMuon: return ImportMuon(from.muon());
    default: return ImportAdamW(from.adamw());
  }
}

GroupSettings ImportGroup(const proto::ParameterGroup& from) {
  GroupSettings group;
  group.patterns.assign(from.pattern().begin(), from.pattern().end());
  if (from.has_learning_rate()) group.rate = from.learning_rate();
  if (from.has_weight_decay()) group.weight_decay = from.weight_decay();
  group.frozen = from.frozen();
  if (from.has_optimizer()) group.optimizer = ImportOptimizer(from.optimizer());
  return group;
}

PrecisionRule ImportPrecisionRule(const proto::PrecisionRule& from) {
  PrecisionRule rule;
  rule.patterns.assign(from.pattern().begin(), from.pattern().end());
  rule.ops.assign(from.op().begin(), from.op().end());
  rule.precision = DTypeOf(from.precision());
  return rule;
}

LossScaleSettings ImportLossScale(const proto::LossScale& from) {
  LossScaleSettings scale;
  scale.adapts = from.fixed() == 0;
  if (from.has_initial()) scale.factor = from.initial();
  if (!scale.adapts) scale.factor = from.fixed();
  if (from.has_growth()) scale.growth = from.growth();
  if (from.has_backoff()) scale.backoff = from.backoff();
  if (from.has_growth_interval()) scale.growth_interval = from.growth_interval();
  return scale;
}

TrainingSettings ImportTraining(const proto::Training& training) {
  constexpr double kAverageDecay = 0.999;
  TrainingSettings settings;
  settings.seed = training.seed();
  settings.zero_stage = training.zero_stage();
  if (!training.zero_axis().empty()) settings.zero_axis = training.zero_axis();
  settings.precision = DTypeOf(training.precision());
  for (const proto::PrecisionRule& rule : training.precision_of())
    settings.precision_rules.push_back(ImportPrecisionRule(rule));
  if (settings.precision == DType::kF16)
    settings.loss_scale = ImportLossScale(training.loss_scale());
  settings.clip_norm = training.optimizer().clip_norm();
  settings.learning_rates = LearningRatesOf(training);
  settings.optimizer = ImportOptimizer(training.optimizer());
  for (const proto::ParameterGroup& group : training.group())
    settings.groups.push_back(ImportGroup(group));
  if (training.has_average()) {
    settings.average_decay =
        training.average().has_decay() ? training.average().decay() : kAverageDecay;
  }
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

GraphUse GraphUseOf(proto::Runtime::Graphs::Use use) {
  switch (use) {
    case proto::Runtime::Graphs::ON: return GraphUse::kOn;
    case proto::Runtime::Graphs::AUTO: return GraphUse::kAuto;
    default: return GraphUse::kOff;
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
  settings.graphs = GraphUseOf(runtime.graphs());
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

int64_t NumStages(const proto::Job& job) {
  int64_t stages = 1;
  for (const proto::MeshAxisSpec& axis : job.mesh().axis()) {
    if (axis.name() == sbp::kPipelineAxis) stages *= axis.size();
  }
  return stages;
}

// Returns the stages that a rule is for; none: all.
absl::StatusOr<std::vector<int64_t>> StagesOf(const proto::Rule& rule, int64_t num_stages) {
  std::vector<int64_t> stages;
  for (const int64_t stage : rule.stage()) {
    if (stage < 0 || (num_stages > 1 && stage >= num_stages)) {
      return Rejected({"W0458", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                       num_stages > 1 ? absl::StrCat("stages from 0 to ", num_stages - 1,
                                                     ", as the mesh has pp=", num_stages)
                                      : std::string("stages from 0 on"),
                       absl::StrCat("stage ", stage), "no stage at all, for a rule of all stages"});
    }
    if (num_stages > 1) stages.push_back(stage);
  }
  return stages;
}

}  // namespace

DType DTypeOf(proto::Training::Precision precision) {
  switch (precision) {
    case proto::Training::BF16: return DType::kBF16;
    case proto::Training::F16: return DType::kF16;
    default: return DType::kF32;
  }
}

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
  const int64_t num_stages = NumStages(job);
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
    WEIR_ASSIGN_OR_RETURN(std::vector<int64_t> stages, StagesOf(rule, num_stages));
    const int axis = stage_mesh.AxisIndex(rule.axis());
    if (axis >= 0 && stage_mesh.size(axis) > 1)
      rules.AddRule(rule.dim(), axis, ScopeOf(rule.scope()), std::move(stages));
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
