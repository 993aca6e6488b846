// Tests jobs that place the calls of `main` on stages of their own: towers side by side, which join
// later, also on stages of unequal meshes. Every placement trains as one device does.
// docs/examples/two_towers.textproto is the job.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"
#include "tests/training/train_run.h"

namespace weir::training {
namespace {

// The stages of the calls that match the names.
using Places = std::vector<std::pair<std::string, int64_t>>;

proto::Job TwoTowers() {
  std::ifstream file("docs/examples/two_towers.textproto");
  std::stringstream text;
  text << file.rdbuf();
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &job));
  return job;
}

proto::Job Placed(proto::Job job, const std::string& mesh, const Places& places) {
  job.mutable_pipeline()->clear_place();
  for (const auto& [call, stage] : places) {
    proto::Pipeline::Place* place = job.mutable_pipeline()->add_place();
    place->set_call(call);
    place->set_stage(stage);
  }
  return WithMesh(std::move(job), mesh);
}

// Gives stage i the i-th mesh.
proto::Job WithStageMeshes(proto::Job job, const std::vector<std::string>& meshes) {
  job.mutable_pipeline()->clear_stage_mesh();
  for (const std::string& mesh : meshes) {
    proto::Pipeline::StageMesh* entry = job.mutable_pipeline()->add_stage_mesh();
    entry->add_stage(job.pipeline().stage_mesh_size() - 1);
    entry->set_mesh(mesh);
  }
  return job;
}

TrainRun RunOf(const proto::Job& job) {
  absl::StatusOr<TrainRun> run = Train(job, {});
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : TrainRun{};
}

const char* const kCalls[] = {"image_in", "image.0", "image.1", "image.2",
                              "text_in",  "text.0",  "text.1",  "loss"};

void ExpectNear(const TrainRun& run, const TrainRun& one) {
  ASSERT_EQ(run.losses.size(), one.losses.size());
  for (size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], one.losses[step], 1e-5 * one.losses[step]) << "step " << step;
    EXPECT_NEAR(run.grad_norms[step], one.grad_norms[step], 1e-4 * one.grad_norms[step]);
  }
}

// A placement changes where the calls are, and not what they add up, so all bits stay.
TEST(Placement, TowersSideBySideAreTheSameBitsAsOneDevice) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  ASSERT_EQ(one.losses.size(), 3u);
  EXPECT_NE(one.losses[0], one.losses[2]);
  for (const auto schedule :
       {proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::GPIPE, proto::Pipeline::ZERO_BUBBLE}) {
    proto::Job job = TwoTowers();
    job.mutable_pipeline()->set_schedule(schedule);
    for (const auto& [mesh, places] : std::vector<std::pair<std::string, Places>>{
             {"pp=3", {{"image*", 0}, {"text*", 1}, {"loss", 2}}},
             {"pp=3", {{"image*", 2}, {"text*", 0}, {"loss", 1}}},  // any numbers of stages
             {"pp=3", {{"*_in", 0}, {"image.*", 1}, {"text.*", 2}, {"loss", 1}}},  // no cut
             {"pp=2", {{"image*", 0}, {"text*", 1}}},  // the loss follows the text
             {"pp=4", {{"image_in", 0}, {"image.*", 1}, {"text*", 2}, {"loss", 3}}},
             {"pp=5",
              {{"image_in", 0}, {"image.0", 1}, {"image.*", 2}, {"text*", 3}, {"loss", 4}}}}) {
      SCOPED_TRACE(absl::StrCat(mesh, ", schedule ", static_cast<int>(schedule)));
      EXPECT_EQ(FirstDifference(RunOf(Placed(job, mesh, places)), one), "");
    }
  }
}

TEST(Placement, EveryStageMayBeSplitFurther) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  for (const char* mesh : {"pp=3,dp=2", "pp=3,tp=2", "dp=2,pp=3,tp=2"}) {
    for (const int zero : {0, 3}) {
      SCOPED_TRACE(absl::StrCat(mesh, " zero ", zero));
      proto::Job job = WithMesh(TwoTowers(), mesh);
      if (std::string(mesh).find("dp") == std::string::npos && zero > 0) continue;
      job.mutable_training()->set_zero_stage(zero);
      ExpectNear(RunOf(job), one);
    }
  }
}

TEST(Placement, StagesMayHaveMeshesOfTheirOwn) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  for (const std::vector<std::string>& meshes :
       std::vector<std::vector<std::string>>{{"", "dp=2,tp=2", "dp=2"},
                                             {"tp=4", "dp=2,tp=2", ""},
                                             {"dp=2", "tp=3", "dp=4"},
                                             {"dp=3,tp=2", "", "tp=2"}}) {
    for (const int zero : {0, 1, 3}) {
      SCOPED_TRACE(absl::StrCat(meshes[0], " | ", meshes[1], " | ", meshes[2], ", zero ", zero));
      proto::Job job = WithStageMeshes(WithMesh(TwoTowers(), "pp=3,dp=2,tp=2"), meshes);
      job.mutable_training()->set_zero_stage(zero);
      const absl::StatusOr<std::vector<proto::RankPlan>> plans = CompileForAllRanks(job);
      ASSERT_TRUE(plans.ok()) << plans.status();
      int64_t devices = 0;
      for (const std::string& mesh : meshes) devices += sbp::Mesh::Parse(mesh)->num_ranks();
      EXPECT_EQ(static_cast<int64_t>(plans->size()), devices);
      ExpectNear(RunOf(job), one);
      job.mutable_mesh()->set_devices_per_host(2);
      ExpectNear(RunOf(job), one);
    }
  }
}

// Schedules, registers and the order of acts change no bit on unequal meshes either.
TEST(Placement, UnequalMeshesHaveTheSameBitsInEveryOrder) {
  const proto::Job job =
      WithStageMeshes(WithMesh(TwoTowers(), "pp=3,dp=2,tp=2"), {"tp=3", "dp=2,tp=2", "dp=2"});
  const TrainRun first = RunOf(job);
  ASSERT_EQ(first.losses.size(), 3u);
  for (const auto schedule : {proto::Pipeline::GPIPE, proto::Pipeline::ZERO_BUBBLE}) {
    proto::Job other = job;
    other.mutable_pipeline()->set_schedule(schedule);
    other.mutable_runtime()->set_registers(proto::Runtime::SOLVED);
    EXPECT_EQ(FirstDifference(RunOf(other), first), "") << static_cast<int>(schedule);
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TrainRunOptions options;
    options.session.engine = actors::SessionOptions::EngineKind::kSim;
    options.session.sim.seed = seed;
    const absl::StatusOr<TrainRun> run = Train(job, options);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(FirstDifference(*run, first), "") << "seed " << seed;
  }
}

// Where nothing is split, devices compute copies, and all bits are those of one device.
TEST(Placement, CopiesOnUnequalMeshesAreTheSameBitsAsOneDevice) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  proto::Job job = WithMesh(TwoTowers(), "pp=3,dp=2,tp=2");
  EXPECT_EQ(FirstDifference(RunOf(WithStageMeshes(job, {"", "", ""})), one), "");
  job.clear_rule();
  EXPECT_EQ(FirstDifference(RunOf(WithStageMeshes(job, {"", "dp=2,tp=2", "dp=3"})), one), "");
  EXPECT_EQ(FirstDifference(RunOf(WithStageMeshes(job, {"dp=2", "", "tp=2"})), one), "");
}

// Draws a number from 0 to limit - 1; `n` counts the draws of a seed.
int64_t Below(int64_t limit, uint64_t seed, uint64_t* n) {
  return static_cast<int64_t>(UniformAt(seed, (*n)++) * static_cast<float>(limit));
}

// Draws the schedule of the job, and how the numbers of its registers are found.
proto::Job TwoTowersWithDrawnTimes(uint64_t seed, uint64_t* n) {
  proto::Job job = TwoTowers();
  job.mutable_pipeline()->set_schedule(Below(3, seed, n) == 0 ? proto::Pipeline::ZERO_BUBBLE
                                                              : proto::Pipeline::ONE_F_ONE_B);
  job.mutable_runtime()->set_registers(Below(3, seed, n) == 0 ? proto::Runtime::SOLVED
                                                              : proto::Runtime::SCHEDULE);
  return job;
}

// Draws a mesh for every stage, besides the stages of calls.
TEST(Placement, RandomMeshesOfStagesTrainAsOneDevice) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  const std::vector<std::string> kMeshes = {"",     "dp=2",      "tp=2",      "dp=3",
                                            "tp=4", "dp=2,tp=2", "dp=4,tp=2", "dp=2,tp=3"};
  int trained = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    uint64_t n = 1000;
    const auto below = [&](int64_t limit) { return Below(limit, seed, &n); };
    const int64_t stages = 2 + below(3);
    proto::Job job = TwoTowersWithDrawnTimes(seed, &n);
    job.mutable_training()->set_zero_stage(static_cast<int>(below(4)));
    Places places;
    for (int64_t i = 0; i < 8; ++i) places.emplace_back(kCalls[i], i * stages / 8);
    std::vector<std::string> meshes;
    for (int64_t stage = 0; stage < stages; ++stage)
      meshes.push_back(kMeshes[below(static_cast<int64_t>(kMeshes.size()))]);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    job = WithStageMeshes(Placed(job, absl::StrCat("pp=", stages, ",dp=2,tp=2"), places), meshes);
    const absl::StatusOr<TrainRun> run = Train(job, {});
    ASSERT_TRUE(run.ok()) << run.status();
    ++trained;
    ExpectNear(*run, one);
  }
  EXPECT_EQ(trained, 24);
}

// A chain of cuts may have unequal meshes, too, and parts that take turns on a stage.
TEST(Placement, CutsMayHaveMeshesOfTheirOwn) {
  proto::Job job = TwoTowers();
  const TrainRun one = RunOf(WithMesh(job, ""));
  job.mutable_pipeline()->clear_place();
  for (const auto schedule : {proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::INTERLEAVED}) {
    job.mutable_pipeline()->set_schedule(schedule);
    ExpectNear(RunOf(WithStageMeshes(WithMesh(job, "pp=2,dp=2,tp=2"), {"tp=2", "dp=4"})), one);
  }
}

TEST(Placement, WithoutACutALargerStageHasMoreCalls) {
  proto::Job job = TwoTowers();
  job.mutable_pipeline()->clear_place();
  job.mutable_pipeline()->clear_cut();
  const auto calls_of_second = [&job](const std::vector<std::string>& meshes) {
    const auto plan =
        compiler::CompileJob(WithStageMeshes(WithMesh(job, "pp=2,dp=2,tp=2"), meshes), {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    const std::vector<compiler::ModelCall>& calls = (*plan)->module.model.calls;
    return std::count_if(calls.begin(), calls.end(),
                         [](const compiler::ModelCall& call) { return call.stage == 1; });
  };
  const auto of_equal = calls_of_second({});
  EXPECT_GT(calls_of_second({"", "dp=4"}), of_equal);
  EXPECT_LT(calls_of_second({"dp=4", ""}), of_equal);
}

// Entries that say what the mesh says leave the plans as they are, but for their ids.
TEST(Placement, EntriesThatRepeatTheMeshOfTheJobChangeNothing) {
  const proto::Job job = WithMesh(TwoTowers(), "pp=3,dp=2,tp=2");
  const auto plans_of = [](const proto::Job& of) {
    absl::StatusOr<std::vector<proto::RankPlan>> plans = CompileForAllRanks(of);
    EXPECT_TRUE(plans.ok()) << plans.status();
    std::vector<std::string> texts;
    for (proto::RankPlan& plan : *plans) {
      plan.clear_plan_id();
      texts.push_back(plan.DebugString());
    }
    return texts;
  };
  EXPECT_TRUE(plans_of(job) == plans_of(WithStageMeshes(job, {"dp=2,tp=2", "tp=2,dp=2"})));
}

TEST(Placement, WhatCannotBeMeantWithMeshesOfStagesIsRefused) {
  const proto::Job job = WithMesh(TwoTowers(), "pp=3,dp=2");
  const auto flaw = [](const proto::Job& refused) {
    return std::string(compiler::CompileJob(refused, {}).status().message());
  };
  EXPECT_NE(flaw(WithStageMeshes(job, {"tp=2"})).find("W0497"), std::string::npos);
  EXPECT_NE(flaw(WithStageMeshes(job, {"pp=2"})).find("W0497"), std::string::npos);
  EXPECT_NE(flaw(WithStageMeshes(job, {"", "", "", ""})).find("W0497"), std::string::npos);
  EXPECT_NE(flaw(WithStageMeshes(job, {"dp=0"})).find("W0103"), std::string::npos);
  proto::Job ordered = WithStageMeshes(job, {"dp=1"});
  ordered.mutable_mesh()->add_rank_order("dp");
  ordered.mutable_mesh()->add_rank_order("pp");
  EXPECT_NE(flaw(ordered).find("W0498"), std::string::npos);
  // On one stage the entries have no effect.
  EXPECT_EQ(flaw(WithStageMeshes(WithMesh(TwoTowers(), "dp=2"), {"tp=2"})), "");
}

// Draws a stage for every call. Stages that form a circle, or have no call, are refused with the
// code that says so; all others train as one device.
TEST(Placement, RandomPlacesTrainAsOneDeviceOrAreRefused) {
  const TrainRun one = RunOf(WithMesh(TwoTowers(), ""));
  int trained = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int64_t limit) { return Below(limit, seed, &n); };
    const int64_t stages = 2 + below(3);
    proto::Job job = TwoTowersWithDrawnTimes(seed, &n);
    Places places;
    int64_t stage = below(stages);
    for (const char* call : kCalls) {
      // Calls that follow one another mostly share a stage.
      if (below(3) == 0) stage = below(stages);
      if (below(5) != 0) places.emplace_back(call, stage);
    }
    if (places.empty()) continue;
    const absl::StatusOr<TrainRun> run =
        Train(Placed(job, absl::StrCat("pp=", stages), places), {});
    if (run.ok()) {
      ++trained;
      EXPECT_EQ(FirstDifference(*run, one), "") << "seed " << seed;
      continue;
    }
    ++refused;
    const std::string message(run.status().message());
    EXPECT_TRUE(message.find("W0455") != std::string::npos ||
                message.find("W0456") != std::string::npos)
        << "seed " << seed << ": " << message;
  }
  EXPECT_GE(trained, 10);
  EXPECT_GE(refused, 5);
}

// A weight that both towers read lies with its first reader, and its gradient is the sum over both.
TEST(Placement, TowersMayShareAWeight) {
  proto::Job job = TwoTowers();
  proto::Function* main =
      job.mutable_graph()->mutable_function()->Mutable(job.graph().function_size() - 1);
  ASSERT_EQ(main->name(), "main");
  for (proto::Function& function : *job.mutable_graph()->mutable_function()) {
    if (function.name() != "image_block" && function.name() != "text_block") continue;
    // The last parameter becomes an input, which main gives from one weight of its own.
    proto::Parameter shared = function.parameter(function.parameter_size() - 1);
    function.mutable_parameter()->RemoveLast();
    proto::TensorDecl* input = function.add_input();
    input->set_name(shared.name());
    input->set_type(shared.type());
    if (main->parameter_size() == 0) *main->add_parameter() = shared;
  }
  for (proto::Node& node : *main->mutable_node()) {
    if (node.name() == "image" || node.name() == "text") node.add_shared("w_down");
  }
  const TrainRun one = RunOf(WithMesh(job, ""));
  ASSERT_EQ(one.weights.count("w_down"), 1u);
  for (const char* mesh : {"pp=3", "pp=3,dp=2"}) {
    SCOPED_TRACE(mesh);
    ExpectNear(RunOf(WithMesh(job, mesh)), one);
  }
  for (const int zero : {0, 3}) {
    proto::Job unequal = WithMesh(job, "pp=3,dp=2,tp=2");
    unequal.mutable_training()->set_zero_stage(zero);
    ExpectNear(RunOf(WithStageMeshes(unequal, {"dp=2", "tp=2", ""})), one);
    ExpectNear(RunOf(WithStageMeshes(unequal, {"", "dp=2,tp=2", "dp=2"})), one);
  }
}

TEST(Placement, AStageMayHaveRulesOfItsOwn) {
  proto::Job job = TwoTowers();
  const TrainRun one = RunOf(WithMesh(job, ""));
  // The towers split their inner dimension, the words are split in the text tower alone, and the
  // head splits its classes.
  const auto add = [&job](const std::string& dim, int64_t stage) {
    proto::Rule* rule = job.add_rule();
    rule->set_dim(dim);
    rule->set_axis("tp");
    rule->add_stage(stage);
  };
  job.clear_rule();
  add("ffn", 0);
  add("words", 1);
  add("classes", 2);
  ExpectNear(RunOf(WithMesh(job, "pp=3,tp=2")), one);
  // One function on two stages with different rules has a layout for each.
  job.mutable_pipeline()->clear_place();
  job.mutable_pipeline()->clear_cut();
  job.clear_rule();
  add("ffn", 0);
  add("hidden", 1);
  const proto::Job placed =
      Placed(job, "pp=2,tp=2",
             {{"image_in", 0}, {"image.0", 0}, {"text*", 1}, {"image.*", 1}, {"loss", 1}});
  ExpectNear(RunOf(placed), one);
  const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
      compiler::CompileJob(placed, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<std::string> names;
  for (const compiler::Function& function : (*plan)->module.functions) names.insert(function.name);
  EXPECT_EQ(names.count("image_block"), 1u);
  EXPECT_EQ(names.count("image_block@1"), 1u);
}

TEST(Placement, ABubbleIsClaimedForChainsAlone) {
  const auto schedule_of = [](const proto::Job& job) {
    return (*compiler::CompileJob(job, {}))->schedule;
  };
  EXPECT_FALSE(schedule_of(TwoTowers()).is_chain());
  EXPECT_EQ(schedule_of(TwoTowers()).stages_in_a_row(), 2);
  EXPECT_TRUE(schedule_of(Placed(TwoTowers(), "pp=2", {{"image*", 1}, {"text*", 0}})).is_chain());
  const absl::StatusOr<std::vector<proto::RankPlan>> plans = CompileForAllRanks(TwoTowers());
  ASSERT_TRUE(plans.ok()) << plans.status();
  for (const proto::RankPlan& plan : *plans) {
    EXPECT_EQ(plan.stages_in_a_row(), 2);
    EXPECT_EQ(plan.virtual_stages(), 0);
  }
}

// A chain counts stages by their numbers, so the first tower of a chain keeps micro-batches for a
// stage that it does not send to.
TEST(Placement, TowersKeepFewerMicroBatchesThanAChain) {
  proto::Job chain = TwoTowers();
  chain.mutable_pipeline()->clear_place();
  chain.mutable_pipeline()->add_cut("text_in");
  chain.mutable_pipeline()->add_cut("loss");
  const absl::StatusOr<std::vector<proto::RankPlan>> of_chain = CompileForAllRanks(chain),
                                                     of_towers = CompileForAllRanks(TwoTowers());
  ASSERT_TRUE(of_chain.ok()) << of_chain.status();
  ASSERT_TRUE(of_towers.ok()) << of_towers.status();
  EXPECT_LT((*of_towers)[0].arena_bytes(), (*of_chain)[0].arena_bytes());
  EXPECT_EQ((*of_towers)[1].arena_bytes(), (*of_chain)[1].arena_bytes());
}

}  // namespace
}  // namespace weir::training
