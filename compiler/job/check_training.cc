#include "compiler/job/check_training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/precision_rules.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kMuonIterationsMax = 64;

absl::Status CheckZero(const proto::Training& training, const sbp::Mesh& stage_mesh) {
  if (training.zero_stage() < 0 || training.zero_stage() > 3) {
    return Rejected(
        {"W0440", "training.zero_stage", "0, 1, 2 or 3", absl::StrCat(training.zero_stage()), ""});
  }
  if (training.zero_stage() > 0 && !training.zero_axis().empty() &&
      stage_mesh.AxisIndex(training.zero_axis()) < 0) {
    std::vector<std::string> names;
    for (const sbp::MeshAxis& axis : stage_mesh.axes()) names.push_back(axis.name);
    return Rejected(
        {"W0441", "training.zero_axis",
         names.empty() ? "a mesh with the axis"
                       : absl::StrCat("an axis of the mesh: ", absl::StrJoin(names, ", ")),
         absl::StrCat("\"", training.zero_axis(), "\""), Nearest(training.zero_axis(), names)});
  }
  return absl::OkStatus();
}

absl::Status CheckCounts(const proto::Job& job) {
  const proto::Training& training = job.training();
  const std::vector<std::pair<const char*, int64_t>> counts = {
      {"mesh.devices_per_host", job.mesh().devices_per_host()},
      {"training.steps", training.steps()},
      {"training.eval_every", training.eval_every()},
      {"training.eval_batches", training.eval_batches()},
      {"training.schedule.warmup_steps", training.schedule().warmup_steps()},
      {"training.schedule.decay_steps", training.schedule().decay_steps()},
  };
  for (const auto& [where, count] : counts) {
    if (count < 0) return Rejected({"W0442", where, "0 or more", absl::StrCat(count), ""});
  }
  return absl::OkStatus();
}

absl::Status CheckUpdates(const proto::Training& training) {
  if (training.update_every() < 0 || training.update_every() > plan_limits::kStepsPerIterationMax) {
    return Rejected({"W0545", "training.update_every",
                     absl::StrCat("1 to ", plan_limits::kStepsPerIterationMax, ", or 0 for 1"),
                     absl::StrCat(training.update_every()),
                     "more training.micro_batches, if more is to be accumulated"});
  }
  if (training.gradient_delay() < 0 || training.gradient_delay() > kGradientDelayMax) {
    return Rejected({"W0545", "training.gradient_delay", absl::StrCat("0 to ", kGradientDelayMax),
                     absl::StrCat(training.gradient_delay()), ""});
  }
  const UpdateRate updates = UpdateRateOf(training);
  if (updates.phase >= 0 && updates.phase < updates.every) return absl::OkStatus();
  return Rejected({"W0546", "training.update_phase",
                   updates.every == 1 ? std::string("0, as weights are updated in every step")
                                      : absl::StrCat("0 to ", updates.every - 1,
                                                     ", as weights are updated in one of ",
                                                     updates.every, " steps"),
                   absl::StrCat(updates.phase),
                   absl::StrCat("leave it out for ", updates.every - 1,
                                ", the last of them, or set training.update_every")});
}

absl::Status CheckAnyUpdate(const proto::Training& training) {
  const UpdateRate updates = UpdateRateOf(training);
  const int64_t needed = updates.delay * updates.every + updates.phase + 1;
  if (training.steps() == 0 || training.steps() >= needed) return absl::OkStatus();
  return Rejected(
      {"W0547", "training.steps",
       absl::StrCat("at least ", needed, ", as weights change for the first time in step ", needed,
                    ": update_every ", updates.every, ", update_phase ", updates.phase,
                    ", gradient_delay ", updates.delay),
       absl::StrCat(training.steps(), ", which would change no weight"),
       "more steps, or a smaller training.update_every or gradient_delay"});
}

// A number of a job that is 0 or more.
struct Number {
  const char* code;
  std::string where;
  double value;
  double below = std::numeric_limits<double>::infinity();  // the first value that is too large
};

absl::Status CheckNumber(const Number& number) {
  if (number.value >= 0 && number.value < number.below) return absl::OkStatus();
  std::string expected = std::isinf(number.below) ? std::string("a finite number, 0 or more")
                                                  : absl::StrCat("from 0 to below ", number.below);
  return Rejected({number.code, number.where, expected, absl::StrCat(number.value), ""});
}

absl::Status CheckAll(const std::vector<Number>& numbers) {
  for (const Number& number : numbers) WEIR_RETURN_IF_ERROR(CheckNumber(number));
  return absl::OkStatus();
}

absl::Status CheckAdamW(const proto::Optimizer::AdamW& adamw, const std::string& where) {
  return CheckAll({{"W0445", where + ".beta1", adamw.beta1(), 1},
                   {"W0445", where + ".beta2", adamw.beta2(), 1},
                   {"W0445", where + ".epsilon", adamw.epsilon()},
                   {"W0445", where + ".weight_decay", adamw.weight_decay()}});
}

absl::Status CheckAdafactor(const proto::Optimizer::Adafactor& adafactor,
                            const std::string& where) {
  WEIR_RETURN_IF_ERROR(CheckAll({{"W0445", where + ".epsilon1", adafactor.epsilon1()},
                                 {"W0445", where + ".epsilon2", adafactor.epsilon2()},
                                 {"W0445", where + ".weight_decay", adafactor.weight_decay()}}));
  if (adafactor.has_clip_threshold() &&
      !(adafactor.clip_threshold() > 0 && std::isfinite(adafactor.clip_threshold()))) {
    return Rejected({"W0445", where + ".clip_threshold", "a finite number above 0",
                     absl::StrCat(adafactor.clip_threshold()), "clip_threshold: 1"});
  }
  if (adafactor.beta2_decay() <= 0 && adafactor.beta2_decay() >= -1) return absl::OkStatus();
  return Rejected({"W0445", where + ".beta2_decay", "from -1 to 0",
                   absl::StrCat(adafactor.beta2_decay()), "beta2_decay: -0.8"});
}

absl::Status CheckMuon(const proto::Optimizer::Muon& muon, const std::string& where) {
  WEIR_RETURN_IF_ERROR(CheckAll({{"W0445", where + ".momentum", muon.momentum(), 1},
                                 {"W0445", where + ".epsilon", muon.epsilon()},
                                 {"W0445", where + ".weight_decay", muon.weight_decay()}}));
  if (muon.has_iterations() && (muon.iterations() < 1 || muon.iterations() > kMuonIterationsMax)) {
    return Rejected({"W0445", where + ".iterations", absl::StrCat("1 to ", kMuonIterationsMax),
                     absl::StrCat(muon.iterations()), "iterations: 5"});
  }
  return CheckAdamW(muon.adamw(), where + ".adamw");
}

// `where`: the place of the optimiser in the job.
absl::Status CheckOptimizer(const proto::Optimizer& optimizer, const std::string& where) {
  switch (optimizer.kind_case()) {
    case proto::Optimizer::kSgd:
      return CheckAll({{"W0445", where + ".sgd.momentum", optimizer.sgd().momentum(), 1},
                       {"W0445", where + ".sgd.weight_decay", optimizer.sgd().weight_decay()}});
    case proto::Optimizer::kLion:
      return CheckAll({{"W0445", where + ".lion.beta1", optimizer.lion().beta1(), 1},
                       {"W0445", where + ".lion.beta2", optimizer.lion().beta2(), 1},
                       {"W0445", where + ".lion.weight_decay", optimizer.lion().weight_decay()}});
    case proto::Optimizer::kLamb:
      return CheckAll({{"W0445", where + ".lamb.beta1", optimizer.lamb().beta1(), 1},
                       {"W0445", where + ".lamb.beta2", optimizer.lamb().beta2(), 1},
                       {"W0445", where + ".lamb.epsilon", optimizer.lamb().epsilon()},
                       {"W0445", where + ".lamb.weight_decay", optimizer.lamb().weight_decay()}});
    case proto::Optimizer::kAdafactor:
      return CheckAdafactor(optimizer.adafactor(), where + ".adafactor");
    case proto::Optimizer::kMuon: return CheckMuon(optimizer.muon(), where + ".muon");
    default: return CheckAdamW(optimizer.adamw(), where + ".adamw");
  }
}

absl::Status CheckGroup(const proto::ParameterGroup& group, const std::string& where) {
  if (group.pattern().empty()) {
    return Rejected(
        {"W0083", where, "a pattern of names of weights", "none", "pattern: \"*.bias\""});
  }
  WEIR_RETURN_IF_ERROR(CheckAll({{"W0083", where + ".learning_rate", group.learning_rate()},
                                 {"W0083", where + ".weight_decay", group.weight_decay()}}));
  if (group.optimizer().clip_norm() != 0) {
    return Rejected({"W0083", where + ".optimizer.clip_norm",
                     "none, as the norm is that of all gradients together",
                     absl::StrCat(group.optimizer().clip_norm()), "training.optimizer.clip_norm"});
  }
  if (group.has_optimizer() && group.optimizer().kind_case() == proto::Optimizer::KIND_NOT_SET) {
    return Rejected({"W0083", where + ".optimizer", "the name of an optimiser", "none",
                     "optimizer { adamw {} }"});
  }
  if (group.frozen() &&
      (group.has_learning_rate() || group.has_weight_decay() || group.has_optimizer())) {
    return Rejected({"W0083", where, "a group that is frozen, or numbers of its training", "both",
                     "remove frozen: true, or the numbers"});
  }
  return CheckOptimizer(group.optimizer(), where + ".optimizer");
}

// Checks factors that multiply the gradient of the loss. Factors and their inverses are f32.
absl::Status CheckLossScale(const proto::Training& training) {
  constexpr double kFactorMax = 0x1p120;
  constexpr int64_t kGrowthIntervalMax = 1 << 24;  // finite steps are counted in f32
  const proto::LossScale& scale = training.loss_scale();
  const std::string where = "training.loss_scale";
  const bool is_f16 = training.precision() == proto::Training::F16;
  if (training.has_loss_scale() && !is_f16) {
    return Rejected(
        {"W0865", where, "precision: F16 beside it, or no loss scale",
         absl::StrCat("precision: ", proto::Training::Precision_Name(training.precision())),
         "remove loss_scale: small gradients are no zeros in F32 and BF16"});
  }
  const auto bad = [&where](const char* field, const std::string& expected, double found) {
    return Rejected({"W0865", absl::StrCat(where, ".", field), expected, absl::StrCat(found),
                     "loss_scale {}, which is initial: 65536 growth: 2 backoff: 0.5 "
                     "growth_interval: 2000; or loss_scale { fixed: 1024 }"});
  };
  const auto is_factor = [](double x) { return x >= 1 / kFactorMax && x <= kFactorMax; };
  if (scale.fixed() != 0 && !is_factor(scale.fixed()))
    return bad("fixed", "a number from 2^-120 to 2^120, or 0 for one that adapts", scale.fixed());
  if (scale.fixed() != 0 && (scale.has_initial() || scale.has_growth() || scale.has_backoff() ||
                             scale.has_growth_interval())) {
    return bad("fixed", "0, or no other number beside it", scale.fixed());
  }
  if (scale.has_initial() && !is_factor(scale.initial()))
    return bad("initial", "a number from 2^-120 to 2^120", scale.initial());
  if (scale.has_growth() && !(scale.growth() >= 1 && is_factor(scale.growth())))
    return bad("growth", "a number from 1 to 2^120", scale.growth());
  if (scale.has_backoff() && !(scale.backoff() > 0 && scale.backoff() < 1))
    return bad("backoff", "above 0 and below 1", scale.backoff());
  if (scale.has_growth_interval() &&
      (scale.growth_interval() < 1 || scale.growth_interval() > kGrowthIntervalMax)) {
    return bad("growth_interval", absl::StrCat("1 to ", kGrowthIntervalMax),
               static_cast<double>(scale.growth_interval()));
  }
  if (!LossScaleAdapts(training) || training.gradient_delay() == 0) return absl::OkStatus();
  return Rejected({"W0866", "training.gradient_delay",
                   "0 with a loss scale that adapts, as late gradients have an earlier scale",
                   absl::StrCat(training.gradient_delay()), "loss_scale { fixed: 1024 }"});
}

absl::Status CheckNumbers(const proto::Training& training) {
  const proto::Optimizer& optimizer = training.optimizer();
  WEIR_RETURN_IF_ERROR(CheckAll(
      {{"W0443", "training.schedule.learning_rate", training.schedule().learning_rate()},
       {"W0443", "training.schedule.min_learning_rate", training.schedule().min_learning_rate()},
       {"W0444", "training.optimizer.clip_norm", optimizer.clip_norm()}}));
  WEIR_RETURN_IF_ERROR(CheckOptimizer(optimizer, "training.optimizer"));
  for (int g = 0; g < training.group_size(); ++g)
    WEIR_RETURN_IF_ERROR(CheckGroup(training.group(g), absl::StrCat("training.group[", g, "]")));
  return CheckNumber({"W0445", "training.average.decay", training.average().decay(), 1});
}

absl::Status CheckRuntime(const proto::Runtime& runtime) {
  struct Count {
    const char* where;
    int64_t value;
    int64_t max;
  };
  const std::vector<Count> counts = {
      {"runtime.threads_per_device", runtime.threads_per_device(), kThreadsPerDeviceMax},
      {"runtime.device_queues", runtime.device_queues(), plan_limits::kQueuesMax},
      {"runtime.device_depth", runtime.device_depth(), plan_limits::kDepthMax},
      {"runtime.chunk_bytes_max", runtime.chunk_bytes_max(), std::numeric_limits<int64_t>::max()},
      {"runtime.debug_register_slots", runtime.debug_register_slots(), kRegisterSlotsMax},
      {"runtime.register_bytes_max", runtime.register_bytes_max(),
       std::numeric_limits<int64_t>::max()},
      {"runtime.memory_bytes_max", runtime.memory_bytes_max(), std::numeric_limits<int64_t>::max()},
      {"runtime.buddy_every", runtime.buddy_every(), std::numeric_limits<int64_t>::max()},
  };
  for (const Count& count : counts) {
    if (count.value >= 0 && count.value <= count.max) continue;
    return Rejected({"W0446", count.where, absl::StrCat("0, the default, or up to ", count.max),
                     absl::StrCat(count.value), ""});
  }
  return absl::OkStatus();
}

}  // namespace

UpdateRate UpdateRateOf(const proto::Training& training) {
  UpdateRate updates;
  updates.every = std::max<int64_t>(1, training.update_every());
  updates.phase = training.has_update_phase() ? training.update_phase() : updates.every - 1;
  updates.delay = training.gradient_delay();
  return updates;
}

bool LossScaleAdapts(const proto::Training& training) {
  return training.precision() == proto::Training::F16 && training.loss_scale().fixed() == 0;
}

LearningRateSchedule LearningRatesOf(const proto::Training& training) {
  const proto::Schedule& from = training.schedule();
  LearningRateSchedule schedule;
  schedule.learning_rate = from.learning_rate();
  schedule.warmup_steps = from.warmup_steps();
  schedule.decay = from.decay() == proto::Schedule::COSINE   ? "cosine"
                   : from.decay() == proto::Schedule::LINEAR ? "linear"
                                                             : "constant";
  schedule.decay_steps = from.decay_steps() > 0 ? from.decay_steps()
                                                : OptimizerSteps(training, UpdateRateOf(training));
  schedule.min_learning_rate = from.min_learning_rate();
  return schedule;
}

absl::Status CheckLearningRates(const proto::Training& training) {
  const LearningRateSchedule rates = LearningRatesOf(training);
  if (!(rates.learning_rate > 0)) {
    return Rejected({"W0921", "training.schedule.learning_rate",
                     "a number above 0: how far each update moves the weights",
                     training.has_schedule() ? "0, or none" : "no training.schedule",
                     "training { schedule { learning_rate: 0.001 } }, or --set "
                     "training.schedule.learning_rate=0.001"});
  }
  const int64_t updates = OptimizerSteps(training, UpdateRateOf(training));
  if (updates == 0 || rates.At(updates - 1) > 0) return absl::OkStatus();
  return Rejected(
      {"W0922", "training.schedule",
       absl::StrCat("a learning rate above 0 in each of the ", updates, " updates of the run"),
       absl::StrCat("0 from update ", rates.decay_steps + 1,
                    " on: ", proto::Schedule::Decay_Name(training.schedule().decay()),
                    " decay ends at update ", rates.decay_steps, ", and min_learning_rate is 0"),
       absl::StrCat("--set training.schedule.decay_steps=", updates,
                    ", which stretches the decay over the run, or a min_learning_rate above 0")});
}

int64_t OptimizerSteps(const proto::Training& training, const UpdateRate& updates) {
  return std::max<int64_t>(0, updates.OptimizerStep(training.steps()));
}

absl::Status CheckTraining(const proto::Job& job, const sbp::Mesh& stage_mesh, PlanMode mode) {
  WEIR_RETURN_IF_ERROR(CheckRuntime(job.runtime()));
  WEIR_RETURN_IF_ERROR(CheckUpdates(job.training()));
  WEIR_RETURN_IF_ERROR(CheckPrecisionRules(job.training()));
  if (mode != PlanMode::kTrain) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(CheckZero(job.training(), stage_mesh));
  WEIR_RETURN_IF_ERROR(CheckCounts(job));
  WEIR_RETURN_IF_ERROR(CheckAnyUpdate(job.training()));
  WEIR_RETURN_IF_ERROR(CheckLossScale(job.training()));
  return CheckNumbers(job.training());
}

}  // namespace weir::compiler
