// Compares the bytes on the edges of running plans with the closed form: for every pair of layouts
// on 2, 3, 4 and 2x2 devices, on the same devices, to others and to those of another mesh, and for
// whole training steps.
#include "absl/strings/str_cat.h"
#include "compiler/cost/cost_model.h"
#include "compiler/explain/bytes_per_step.h"
#include "compiler/ir/function_builder.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

class ZeroFeed final : public actors::DataFeed {
 public:
  absl::Status Fill(const std::string&, int64_t, int64_t, const TensorSlice& slice,
                    void* out) override {
    std::fill_n(static_cast<char*>(out), slice.bytes(), 0);
    return absl::OkStatus();
  }
};

// Returns a program of one source and one boxing.
std::unique_ptr<compiler::LogicalPlan> BoxingPlan(const sbp::Places& places,
                                                  const sbp::TensorType& type,
                                                  const sbp::Placement& from,
                                                  const sbp::Placement& to) {
  auto plan = std::make_unique<compiler::LogicalPlan>();
  plan->places = places;
  plan->stage_mesh = places.mesh(to.place);
  plan->plan_id = "boxing";
  compiler::Module& module = plan->module;
  module.AddValue({"x", type, from.layout, from.place, compiler::Frequency::kStep, -1});
  module.AddValue({"y", type, to.layout, to.place, compiler::Frequency::kStep, -1});
  compiler::ProgramItem source, boxing;
  source.kind = compiler::ItemKind::kSource;
  source.name = "source";
  source.frequency = boxing.frequency = compiler::Frequency::kStep;
  source.feed = "x";
  source.outputs = {0};
  boxing.kind = compiler::ItemKind::kBoxing;
  boxing.name = "x";
  boxing.phase = compiler::PhaseKind::kBoxing;
  boxing.inputs = {0};
  boxing.outputs = {1};
  // Adds a reader, so that the result is needed.
  compiler::FunctionBuilder builder("fetch", plan->stage_mesh);
  ops::ValueId arg = builder.AddArg("y", type, to.layout);
  builder.MarkState(builder.Emit("scale", {arg}, {{type, to.layout}}, {{"factor", 1.0}})[0], "y");
  module.functions.push_back(builder.Take());
  module.functions.back().rules_of_stage = to.place;
  compiler::ProgramItem fetch;
  fetch.name = "fetch";
  fetch.frequency = compiler::Frequency::kStep;
  fetch.function = 0;
  fetch.inputs = {1};
  fetch.states = {{"fetch/y", "", to.layout}};
  module.items = {source, boxing, fetch};
  EXPECT_EQ(compiler::ShapeStages(plan.get()), absl::OkStatus());
  absl::StatusOr<compiler::JobRhythm> rhythm = compiler::SolveRhythm(*plan, compiler::PeakCosts());
  EXPECT_TRUE(rhythm.ok()) << rhythm.status();
  if (rhythm.ok()) plan->rhythm = *std::move(rhythm);
  return plan;
}

struct Counted {
  int64_t bytes = -1;
  int64_t between_hosts = 0;
};

Counted CountedBytes(const compiler::LogicalPlan& plan, int64_t steps) {
  std::vector<proto::RankPlan> plans;
  for (RankId rank : plan.places.all_ranks()) {
    absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, rank);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (!lowered.ok()) return {};
    plans.push_back(*lowered);
  }
  ZeroFeed feed;
  actors::SessionOptions options;
  options.feed = &feed;
  options.engine = actors::SessionOptions::EngineKind::kSim;
  absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(plans, options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return {};
  absl::Status ran = (*session)->RunSteps(steps);
  EXPECT_TRUE(ran.ok()) << ran;
  Counted counted{0, 0};
  for (const actors::EdgeReport& edge : (*session)->Edges()) {
    counted.bytes += edge.payload_bytes;
    if (plan.places.HostOf(edge.from) != plan.places.HostOf(edge.to))
      counted.between_hosts += edge.payload_bytes;
  }
  return counted;
}

std::vector<sbp::Layout> AllLayouts(const sbp::Mesh& mesh) {
  const std::vector<sbp::Sbp> kinds = {sbp::Sbp::B(), sbp::Sbp::S(0), sbp::Sbp::S(1),
                                       sbp::Sbp::P()};
  std::vector<sbp::Layout> layouts = {{}};
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<sbp::Layout> longer;
    for (const sbp::Layout& layout : layouts) {
      for (const sbp::Sbp& sbp : kinds) {
        longer.push_back(layout);
        longer.back().push_back(sbp);
      }
    }
    layouts = longer;
  }
  return layouts;
}

void CheckPairs(const sbp::Places& places, int64_t to_stage) {
  const sbp::Mesh &before = places.mesh(0), &after = places.mesh(to_stage);
  for (const Shape& shape : {Shape{12, 8}, Shape{5, 7}}) {
    sbp::TensorType type{DType::kF32, {{"a", shape[0], 1}, {"b", shape[1], 1}}};
    for (const sbp::Layout& from : AllLayouts(before)) {
      for (const sbp::Layout& to : AllLayouts(after)) {
        SCOPED_TRACE(absl::StrCat(before.ToText(), " ", ToText(from, before), " -> ",
                                  after.ToText(), " ", ToText(to, after), " of ", ToText(type)));
        auto plan = BoxingPlan(places, type, {from, 0}, {to, to_stage});
        absl::StatusOr<std::vector<sbp::BoxingStep>> steps =
            sbp::PlanBoxing(type, {from, 0}, {to, to_stage}, places);
        ASSERT_TRUE(steps.ok()) << steps.status();
        EXPECT_EQ(CountedBytes(*plan, 2).bytes, 2 * TotalBytes(type, *steps, places));
      }
    }
  }
}

void CheckPairs(const std::string& mesh, int64_t to_stage) {
  CheckPairs(sbp::PipelinePlaces(*sbp::Mesh::Parse(mesh)), to_stage);
}

void CheckPairsBetween(const std::string& before, const std::string& after) {
  CheckPairs(sbp::PlacesWithMeshes({*sbp::Mesh::Parse(before), *sbp::Mesh::Parse(after)}), 1);
}

// Compares the bytes between hosts, too, for tensors that are large enough to go over two levels.
// Returns the number of boxings that send fewer bytes between hosts than without two levels.
int CheckPairsOverHosts(const std::string& before, const std::string& after,
                        int64_t devices_per_host) {
  const std::vector<sbp::Mesh> meshes = {*sbp::Mesh::Parse(before), *sbp::Mesh::Parse(after)};
  const sbp::Places places = sbp::PlacesWithMeshes(meshes, devices_per_host);
  const sbp::TensorType type{DType::kF32, {{"a", 48, 1}, {"b", 32, 1}}};
  int better = 0;
  for (const sbp::Layout& from : AllLayouts(meshes[0])) {
    for (const sbp::Layout& to : AllLayouts(meshes[1])) {
      SCOPED_TRACE(absl::StrCat(before, " ", ToText(from, meshes[0]), " -> ", after, " ",
                                ToText(to, meshes[1]), ", hosts of ", devices_per_host));
      const absl::StatusOr<sbp::Boxing> boxing =
          sbp::PlanBoxingOverHosts(type, {from, 0}, {to, 1}, places);
      EXPECT_TRUE(boxing.ok()) << boxing.status();
      if (!boxing.ok()) return 0;
      const int64_t between = BytesBetweenHosts(boxing->type, boxing->steps, boxing->places);
      const Counted counted = CountedBytes(*BoxingPlan(places, type, {from, 0}, {to, 1}), 2);
      EXPECT_EQ(counted.bytes, 2 * TotalBytes(boxing->type, boxing->steps, boxing->places));
      EXPECT_EQ(counted.between_hosts, 2 * between);
      const std::vector<sbp::BoxingStep> one_level =
          *sbp::PlanBoxing(type, {from, 0}, {to, 1}, places);
      better += between < sbp::BytesBetweenHosts(type, one_level, places) ? 1 : 0;
    }
  }
  return better;
}

TEST(BoxingBytes, TwoDevices) { CheckPairs("x=2", 0); }
TEST(BoxingBytes, ThreeDevices) { CheckPairs("x=3", 0); }
TEST(BoxingBytes, FourDevices) { CheckPairs("x=4", 0); }
TEST(BoxingBytes, TwoByTwoDevices) { CheckPairs("x=2,y=2", 0); }
TEST(BoxingBytes, ToOtherDevices) { CheckPairs("pp=2,x=2", 1); }
TEST(BoxingBytes, ToMoreDevices) { CheckPairsBetween("x=1", "x=3"); }
TEST(BoxingBytes, ToFewerDevices) { CheckPairsBetween("x=4", "x=2"); }
TEST(BoxingBytes, ToDevicesOfAnotherMesh) { CheckPairsBetween("x=1,y=4", "x=2,y=2"); }

TEST(BoxingBytes, BetweenTheHostsOfUnequalMeshes) {
  EXPECT_GT(CheckPairsOverHosts("x=2", "x=4", 2), 0);
  EXPECT_GT(CheckPairsOverHosts("x=1,y=2", "x=3,y=2", 4), 0);
  EXPECT_GT(CheckPairsOverHosts("x=6", "x=2", 4), 0);
  EXPECT_GT(CheckPairsOverHosts("x=3", "x=6", 3), 0);
}

TEST(BoxingBytes, AStepOfTrainingSendsWhatThePlanSays) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.heads = 2;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  for (const char* mesh : {"dp=3", "tp=2", "dp=2,tp=2", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    for (int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(mesh, " zero ", zero));
      absl::StatusOr<proto::Job> job = zoo::GptJob(options);
      ASSERT_TRUE(job.ok()) << job.status();
      job->mutable_training()->set_zero_stage(zero);
      *job = WithMesh(*job, mesh);
      auto plan = compiler::CompileJob(*job, {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      absl::StatusOr<int64_t> planned = compiler::BytesPerStep(**plan);
      ASSERT_TRUE(planned.ok()) << planned.status();
      TrainRunOptions run_options;
      run_options.steps = 3;
      absl::StatusOr<TrainRun> run = Train(*job, run_options);
      ASSERT_TRUE(run.ok()) << run.status();
      int64_t counted = 0;
      for (const actors::EdgeReport& edge : run->edges) counted += edge.payload_bytes;
      EXPECT_EQ(counted, 3 * *planned);
    }
  }
}

TEST(BoxingBytes, AStepOnStagesOfUnequalMeshesSendsWhatThePlanSays) {
  zoo::TransformerOptions options;
  options.layers = 3;
  options.hidden = 16;
  options.heads = 4;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"", "dp=2,tp=2"}, {"tp=4", "dp=2,tp=2"}, {"dp=4", "tp=3"}}) {
    for (const auto& [zero, devices_per_host] : {std::pair{0, 0}, {3, 0}, {0, 2}}) {
      SCOPED_TRACE(
          absl::StrCat(first, " and ", second, ", zero ", zero, ", hosts of ", devices_per_host));
      absl::StatusOr<proto::Job> made = zoo::GptJob(options);
      ASSERT_TRUE(made.ok()) << made.status();
      made->mutable_training()->set_zero_stage(zero);
      proto::Job job = WithMesh(*made, "pp=2,dp=2,tp=2");
      job.mutable_mesh()->set_devices_per_host(devices_per_host);
      for (const std::string& mesh : {first, second}) {
        proto::Pipeline::StageMesh* entry = job.mutable_pipeline()->add_stage_mesh();
        entry->add_stage(job.pipeline().stage_mesh_size() - 1);
        entry->set_mesh(mesh);
      }
      auto plan = compiler::CompileJob(job, {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      absl::StatusOr<int64_t> planned = compiler::BytesPerStep(**plan);
      ASSERT_TRUE(planned.ok()) << planned.status();
      TrainRunOptions run_options;
      run_options.steps = 3;
      absl::StatusOr<TrainRun> run = Train(job, run_options);
      ASSERT_TRUE(run.ok()) << run.status();
      int64_t counted = 0;
      for (const actors::EdgeReport& edge : run->edges) counted += edge.payload_bytes;
      EXPECT_EQ(counted, 3 * *planned);
    }
  }
}

}  // namespace
}  // namespace weir::training
