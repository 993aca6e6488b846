#include "compiler/job/import_settings.h"

#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobSettings SettingsOf(const proto::Job& job) {
  absl::StatusOr<JobSettings> settings = ImportSettings(job);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.value_or(JobSettings());
}

TEST(ImportSettings, AnEmptyJobHasTheDefaults) {
  const JobSettings settings = SettingsOf({});
  EXPECT_EQ(settings.pipeline.schedule, ScheduleKind::kOneFOneB);
  EXPECT_EQ(settings.training.zero_axis, "dp");
  EXPECT_EQ(settings.training.precision, DType::kF32);
  const auto* adamw = std::get_if<AdamWSettings>(&settings.training.optimizer);
  ASSERT_NE(adamw, nullptr);
  EXPECT_EQ(adamw->beta1, 0.9);
  EXPECT_EQ(adamw->beta2, 0.999);
  EXPECT_EQ(adamw->epsilon, 1e-8);
  EXPECT_EQ(adamw->weight_decay, 0);
  EXPECT_EQ(settings.runtime.registers, RegisterChoice::kSchedule);
  EXPECT_EQ(settings.runtime.gather_ahead, 1);
}

TEST(ImportSettings, AZeroThatIsWrittenMeansZero) {
  proto::Job job;
  proto::Optimizer* optimizer = job.mutable_training()->mutable_optimizer();
  optimizer->mutable_adamw()->set_beta1(0);
  const JobSettings adamw = SettingsOf(job);
  EXPECT_EQ(std::get<AdamWSettings>(adamw.training.optimizer).beta1, 0);
  EXPECT_EQ(std::get<AdamWSettings>(adamw.training.optimizer).beta2, 0.999);
  optimizer->mutable_muon()->set_momentum(0);
  optimizer->mutable_muon()->set_flatten(true);
  optimizer->mutable_muon()->set_adjust(proto::Optimizer::Muon::RMS);
  proto::ParameterGroup* group = job.mutable_training()->add_group();
  group->add_pattern("*.bias");
  group->set_weight_decay(0);
  group->mutable_optimizer()->mutable_lion();
  job.mutable_training()->mutable_average();
  const TrainingSettings muon = SettingsOf(job).training;
  EXPECT_EQ(std::get<MuonSettings>(muon.optimizer).momentum, 0);
  EXPECT_EQ(std::get<MuonSettings>(muon.optimizer).iterations, 5);
  EXPECT_TRUE(std::get<MuonSettings>(muon.optimizer).adjusts_rms);
  EXPECT_TRUE(std::get<MuonSettings>(muon.optimizer).flattens);
  EXPECT_EQ(muon.average_decay, 0.999);
  ASSERT_EQ(muon.groups.size(), 1u);
  EXPECT_EQ(muon.groups[0].rate, 1);
  EXPECT_EQ(muon.groups[0].weight_decay, 0);
  EXPECT_EQ(std::get<LionSettings>(OptimizerOf(muon, 0)).beta2, 0.99);
  EXPECT_TRUE(std::holds_alternative<MuonSettings>(OptimizerOf(muon, -1)));
}

TEST(ImportSettings, ALossScaleIsThereWithF16Alone) {
  proto::Job job;
  EXPECT_FALSE(SettingsOf(job).training.loss_scale.has_value());
  job.mutable_training()->set_precision(proto::Training::F16);
  const JobSettings defaults = SettingsOf(job);
  EXPECT_EQ(defaults.training.precision, DType::kF16);
  ASSERT_TRUE(defaults.training.loss_scale.has_value());
  EXPECT_TRUE(defaults.training.loss_scale->adapts);
  EXPECT_EQ(defaults.training.loss_scale->factor, 65536);
  EXPECT_EQ(defaults.training.loss_scale->growth, 2);
  EXPECT_EQ(defaults.training.loss_scale->backoff, 0.5);
  EXPECT_EQ(defaults.training.loss_scale->growth_interval, 2000);
  job.mutable_training()->mutable_loss_scale()->set_fixed(8);
  EXPECT_FALSE(SettingsOf(job).training.loss_scale->adapts);
  EXPECT_EQ(SettingsOf(job).training.loss_scale->factor, 8);
}

TEST(ImportSettings, WhatTheJobSaysIsTaken) {
  proto::Job job;
  for (const char* call : {"b", "d"}) job.mutable_pipeline()->add_cut(call);
  job.mutable_training()->set_seed(7);
  job.mutable_training()->set_zero_stage(2);
  job.mutable_training()->set_zero_axis("sp");
  job.mutable_training()->set_precision(proto::Training::BF16);
  job.mutable_training()->set_steps(50);
  job.mutable_training()->mutable_schedule()->set_decay(proto::Schedule::COSINE);
  job.mutable_training()->mutable_optimizer()->set_clip_norm(0.5);
  job.mutable_training()->mutable_optimizer()->mutable_sgd()->set_momentum(0.75);
  job.mutable_runtime()->set_device("walled");
  job.mutable_runtime()->set_device_queues(3);
  job.mutable_runtime()->set_device_depth(5);
  job.mutable_runtime()->set_chunk_bytes_max(1000);
  job.mutable_runtime()->set_debug_register_slots(4);
  job.mutable_runtime()->set_register_bytes_max(9);
  job.mutable_runtime()->set_gather_ahead(-1);
  job.mutable_runtime()->set_graphs(proto::Runtime::Graphs::AUTO);
  const JobSettings settings = SettingsOf(job);
  EXPECT_EQ(settings.pipeline.cut, (std::vector<std::string>{"b", "d"}));
  EXPECT_EQ(settings.training.seed, 7u);
  EXPECT_EQ(settings.training.zero_stage, 2);
  EXPECT_EQ(settings.training.zero_axis, "sp");
  EXPECT_EQ(settings.training.precision, DType::kBF16);
  EXPECT_EQ(settings.training.learning_rates.decay, "cosine");
  EXPECT_EQ(settings.training.learning_rates.decay_steps, 50) << "the steps of the run";
  EXPECT_EQ(settings.training.clip_norm, 0.5);
  ASSERT_TRUE(std::holds_alternative<SgdSettings>(settings.training.optimizer));
  EXPECT_EQ(std::get<SgdSettings>(settings.training.optimizer).momentum, 0.75);
  EXPECT_EQ(settings.runtime.device, "walled");
  EXPECT_EQ(settings.runtime.device_queues, 3);
  EXPECT_EQ(settings.runtime.device_depth, 5);
  EXPECT_EQ(settings.runtime.chunk_bytes_max, 1000);
  EXPECT_EQ(settings.runtime.debug_register_slots, 4);
  EXPECT_EQ(settings.runtime.register_bytes_max, 9);
  EXPECT_EQ(settings.runtime.gather_ahead, -1);
  EXPECT_EQ(settings.runtime.graphs, GraphUse::kAuto);
}

// Each choice of the job's language has one value here, with the job's name for it.
TEST(ImportSettings, EveryChoiceOfRegistersAndScheduleIsKnown) {
  for (int choice = proto::Runtime::Registers_MIN; choice <= proto::Runtime::Registers_MAX;
       ++choice) {
    proto::Job job;
    job.mutable_runtime()->set_registers(static_cast<proto::Runtime::Registers>(choice));
    EXPECT_EQ(Name(SettingsOf(job).runtime.registers),
              proto::Runtime::Registers_Name(job.runtime().registers()));
  }
  std::set<ScheduleKind> kinds;
  for (int kind = proto::Pipeline::ScheduleKind_MIN; kind <= proto::Pipeline::ScheduleKind_MAX;
       ++kind) {
    proto::Job job;
    job.mutable_pipeline()->set_schedule(static_cast<proto::Pipeline::ScheduleKind>(kind));
    kinds.insert(SettingsOf(job).pipeline.schedule);
  }
  EXPECT_EQ(kinds.size(), static_cast<size_t>(proto::Pipeline::ScheduleKind_ARRAYSIZE));
}

TEST(ImportSettings, AnImpossibleNumberOfPartsIsRefused) {
  const auto flaw = [](proto::Pipeline::ScheduleKind kind, int64_t virtual_stages) {
    proto::Job job;
    job.mutable_pipeline()->set_schedule(kind);
    job.mutable_pipeline()->set_virtual_stages(virtual_stages);
    const absl::Status status = ImportSettings(job).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(flaw(proto::Pipeline::ONE_F_ONE_B, 2),
              AllOf(HasSubstr("W0476 at pipeline.virtual_stages"),
                    HasSubstr("Try: pipeline.schedule=INTERLEAVED")));
  EXPECT_THAT(flaw(proto::Pipeline::GPIPE, -1), HasSubstr("W0476"));
  EXPECT_THAT(flaw(proto::Pipeline::INTERLEAVED, -1), HasSubstr("W0476"));
  EXPECT_THAT(flaw(proto::Pipeline::INTERLEAVED, 1025), HasSubstr("to 1024"));
  EXPECT_THAT(flaw(static_cast<proto::Pipeline::ScheduleKind>(77), 0),
              HasSubstr("W0476 at pipeline.schedule"));
}

proto::Job JobWithRule(const std::string& dim, const std::string& axis) {
  proto::Job job;
  proto::Rule* rule = job.add_rule();
  rule->set_dim(dim);
  rule->set_axis(axis);
  return job;
}

proto::Job JobWithLayouts(const Pairs& layouts) {
  proto::Job job;
  for (const auto& [tensor, sbp] : layouts) {
    proto::LayoutOverride* entry = job.add_layout();
    entry->set_tensor(tensor);
    entry->set_sbp(sbp);
  }
  return job;
}

std::string Refusal(const proto::Job& job) {
  const absl::Status status = ImportRules(job, MeshOf("dp=2,tp=2"), TestDims()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ImportRules, ARuleAboutAnUnknownDimensionIsRefusedWithTheNearest) {
  EXPECT_THAT(Refusal(JobWithRule("batsh", "dp")),
              AllOf(HasSubstr("W0481 at rule batsh -> dp"), HasSubstr("Try: dim: \"batch\"")));
}

TEST(ImportRules, ARuleAboutThePipelineOrAboutNoAxisIsRefused) {
  EXPECT_THAT(Refusal(JobWithRule("batch", "pp")),
              AllOf(HasSubstr("W0482"), HasSubstr("pipeline { cut: ... }")));
  EXPECT_THAT(Refusal(JobWithRule("batch", "")), HasSubstr("W0485 at rule batch -> "));
}

TEST(ImportRules, ARuleAboutAnAxisThatTheMeshLacksOrThatHasOneRankDoesNothing) {
  const sbp::TensorType type = TypeOf("f32[batch, wide]");
  for (const char* mesh : {"", "tp=2", "dp=1", "dp=1,tp=2"}) {
    const LayoutRules rules = *ImportRules(JobWithRule("batch", "dp"), MeshOf(mesh), TestDims());
    EXPECT_EQ(rules.LayoutOf(type, RuleScope::kActivations), sbp::Broadcast(MeshOf(mesh))) << mesh;
    EXPECT_TRUE(rules.WhyOf(type, RuleScope::kActivations).empty()) << mesh;
  }
}

TEST(ImportRules, RulesKeepTheirOrderAndScope) {
  proto::Job job = JobWithRule("wide", "dp");
  job.mutable_rule(0)->set_scope(proto::Rule::PARAMETERS);
  *job.add_rule() = JobWithRule("wide", "tp").rule(0);
  job.mutable_rule(1)->set_scope(proto::Rule::ACTIVATIONS);
  *job.add_rule() = JobWithRule("deep", "dp").rule(0);
  const LayoutRules rules = *ImportRules(job, MeshOf("dp=2,tp=2"), TestDims());
  EXPECT_EQ(rules.Find("wide", 0, RuleScope::kParameters), 0);
  EXPECT_EQ(rules.Find("wide", 0, RuleScope::kActivations), -1);
  EXPECT_EQ(rules.Find("wide", 1, RuleScope::kActivations), 1);
  EXPECT_EQ(rules.Find("deep", 0, RuleScope::kActivations), 2);
  EXPECT_EQ(rules.Find("deep", 0, RuleScope::kParameters), 2);
}

TEST(ImportRules, ATensorHasOneExplicitLayoutInTheTextOfLayouts) {
  EXPECT_THAT(Refusal(JobWithLayouts({{"layer/x", "[dp: B]"}, {"layer/x", "[dp: S(0)]"}})),
              HasSubstr("W0484 at layout of \"layer/x\""));
  EXPECT_THAT(Refusal(JobWithLayouts({{"layer/x", "[dp: Q]"}})),
              HasSubstr("W0203 at layout of \"layer/x\""));
}

TEST(ImportSettings, PlacesExcludeCutsAndInterleaving) {
  proto::Job job;
  proto::Pipeline* pipeline = job.mutable_pipeline();
  proto::Pipeline::Place* place = pipeline->add_place();
  place->set_call("image.*");
  place->set_stage(1);
  absl::StatusOr<JobSettings> settings = ImportSettings(job);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->pipeline.places.size(), 1u);
  EXPECT_EQ(settings->pipeline.places[0].call, "image.*");
  EXPECT_EQ(settings->pipeline.places[0].stage, 1);
  const auto flaw = [&] { return std::string(ImportSettings(job).status().message()); };
  pipeline->add_cut("image.1");
  EXPECT_THAT(flaw(), HasSubstr("W0457"));
  pipeline->clear_cut();
  pipeline->set_schedule(proto::Pipeline::INTERLEAVED);
  EXPECT_THAT(flaw(), HasSubstr("W0457"));
  pipeline->clear_schedule();
  place->set_function("block");
  EXPECT_THAT(flaw(), HasSubstr("W0453"));
  place->clear_call();
  EXPECT_TRUE(ImportSettings(job).ok());
  place->clear_function();
  EXPECT_THAT(flaw(), HasSubstr("neither"));
  place->set_call(std::string(1001, 'a'));
  EXPECT_THAT(flaw(), HasSubstr("at most 1000 characters"));
  for (int i = 0; i < 1024; ++i) pipeline->add_place()->set_call("a");
  EXPECT_THAT(flaw(), HasSubstr("at most 1024 entries"));
}

TEST(ImportRules, ARuleMayBeForSomeStages) {
  proto::Job job = JobWithRule("batch", "dp");
  job.mutable_rule(0)->add_stage(2);
  const auto rules_on = [&](int64_t stages) {
    job.clear_mesh();
    proto::MeshAxisSpec* axis = job.mutable_mesh()->add_axis();
    axis->set_name("pp");
    axis->set_size(stages);
    return ImportRules(job, MeshOf("dp=2"), TestDims());
  };
  ASSERT_TRUE(rules_on(3).ok());
  EXPECT_TRUE(rules_on(3)->DifferByStage());
  EXPECT_FALSE(rules_on(1)->DifferByStage()) << "one stage has all rules";
  EXPECT_THAT(std::string(rules_on(2).status().message()), HasSubstr("W0458"));
  job.mutable_rule(0)->set_stage(0, -1);
  EXPECT_THAT(std::string(rules_on(3).status().message()), HasSubstr("W0458"));
  EXPECT_THAT(std::string(rules_on(1).status().message()), HasSubstr("stages from 0 on"));
}

}  // namespace
}  // namespace weir::compiler
