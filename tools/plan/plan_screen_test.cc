// Tests the screen of `weir plan` and the sections below it, for jobs of the zoo on several meshes.
#include "tools/plan/plan_screen.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/compile.h"
#include "compiler/explain/bytes_per_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "tools/job/job_file.h"
#include "tools/plan/boxing_costs.h"
#include "tools/plan/plan_sections.h"
#include "tools/sim/cluster_file.h"
#include "tools/train/shared_cores.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

zoo::TransformerOptions Options(const std::string& mesh) {
  zoo::TransformerOptions options;
  options.layers = 4;
  options.hidden = 64;
  options.heads = 4;
  options.sequence = 32;
  options.training.batch = 16;
  options.training.micro_batches = 4;
  options.training.mesh = mesh;
  return options;
}

proto::Job GptOn(const std::string& mesh) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(Options(mesh));
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

struct Planned {
  std::unique_ptr<compiler::LogicalPlan> plan;
  sim::JobCosts costs = sim::JobCosts::Defaults();
  sim::StepPrediction prediction;
  std::string screen;
};

Planned PlanOf(const proto::Job& job, sim::JobCosts costs = sim::JobCosts::Defaults(),
               const PlacedAxes& placed = {}) {
  Planned planned;
  planned.costs = std::move(costs);
  compiler::CompileOptions options;
  options.costs = &planned.costs.model();
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  planned.plan = *std::move(plan);
  planned.prediction = sim::PredictStep(*planned.plan, planned.costs);
  absl::StatusOr<train::NeedAndPlans> memory =
      train::NeedAndPlansOf(*planned.plan, train::Beside::kEvaluation);
  EXPECT_TRUE(memory.ok()) << memory.status();
  absl::StatusOr<std::string> screen =
      PlanScreen(*planned.plan, planned.costs, planned.prediction, *memory, placed);
  EXPECT_TRUE(screen.ok()) << screen.status();
  planned.screen = *screen;
  return planned;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

sim::JobCosts FromCluster(const std::string& text) {
  absl::StatusOr<proto::Cluster> cluster = sim::ParseCluster(text, "cluster");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return sim::JobCosts::Of(*cluster);
}

constexpr char kAccelerators[] = R"(
    name: "two hosts"
    device {
      name: "accelerator" memory_bytes: 1e9 act_ns: 500 kernel_ns: 1000 bytes_per_second: 1e11
      peak { dtype: "f32" flops_per_second: 1e12 efficiency: 0.5 }
    }
    host { device: "accelerator" devices: 4 count: 2 }
    within_host { latency_ns: 2000 bytes_per_second: 1e10 message_ns: 300 }
    between_hosts { latency_ns: 9000 bytes_per_second: 2e9 message_ns: 300 shared: DEVICE })";

constexpr char kManyAccelerators[] = R"(
    device {
      name: "accelerator" memory_bytes: 1e9 act_ns: 500 kernel_ns: 1000 bytes_per_second: 1e11
      peak { dtype: "f32" flops_per_second: 1e12 efficiency: 0.5 }
    }
    host { device: "accelerator" devices: 16 }
    within_host { latency_ns: 2000 bytes_per_second: 1e10 message_ns: 300 })";

class ScreenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ScreenTest, FitsOneScreenAndBeginsWithFit) {
  const absl::StatusOr<proto::Job> llama = zoo::LlamaJob(Options(GetParam()));
  ASSERT_TRUE(llama.ok()) << llama.status();
  for (const proto::Job& job : {GptOn(GetParam()), *llama}) {
    const Planned planned = PlanOf(job);
    const std::vector<std::string> lines = LinesOf(planned.screen);
    EXPECT_LE(lines.size(), static_cast<size_t>(kScreenLines)) << planned.screen;
    EXPECT_TRUE(absl::StartsWith(planned.screen, "fit       fits: ")) << planned.screen;
    for (const std::string& line : lines) EXPECT_LE(NumCharacters(line), kScreenColumns) << line;
    EXPECT_THAT(planned.screen, HasSubstr("default costs"));
    EXPECT_THAT(planned.screen, HasSubstr("\nwarnings  "));
    EXPECT_THAT(planned.screen, HasSubstr("--layouts"));
    EXPECT_TRUE(planned.prediction.report.has_value()) << planned.prediction.why_not;
  }
}

TEST_P(ScreenTest, SectionsKeepToTheirColumnsAndGiveAReasonForEveryLayout) {
  const Planned planned = PlanOf(GptOn(GetParam()));
  const absl::StatusOr<std::string> text = ExplainPlan(*planned.plan, &planned.costs.model());
  ASSERT_TRUE(text.ok()) << text.status();
  for (const std::string& line : LinesOf(*text)) {
    EXPECT_LE(NumCharacters(line), kSectionColumns) << line;
    // A layout that does not fit beside its tensor stands on the next line, and its reason follows
    // the layout.
    if (absl::StartsWith(line, "      [")) {
      EXPECT_THAT(line, HasSubstr("]  ")) << "no reason: " << line;
      EXPECT_FALSE(absl::EndsWith(line, " ")) << "no reason: " << line;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ScreenTest,
                         ::testing::Values("", "dp=2", "dp=2,tp=2", "pp=2", "pp=4,dp=2,tp=2",
                                           "tp=4"),
                         [](const auto& test) {
                           std::string name = "mesh";
                           for (char c : test.param)
                             name.push_back(std::isalnum(static_cast<unsigned char>(c)) ? c : '_');
                           return name;
                         });

std::string Unwrapped(const std::string& screen) {
  return absl::StrJoin(absl::StrSplit(screen, "\n          "), " ");
}

TEST(PlanScreenTest, TheMemoryOfARankIsTheSameFigureEverywhere) {
  for (const char* mesh : {"dp=2,tp=2", "pp=2"}) {
    const std::string screen = Unwrapped(PlanOf(GptOn(mesh)).screen);
    const std::string before = " needs most, ";
    const size_t begin = screen.find(before) + before.size();
    const std::string need = screen.substr(begin, screen.find("iB", begin) + 2 - begin);
    const std::string devices = screen.substr(screen.find("\ndevices "));
    EXPECT_THAT(devices, HasSubstr(absl::StrCat("  ", need, "  "))) << screen;
  }
}

TEST(PlanScreenTest, MoreDevicesThanCoresAreNoticedOnTheLineOfThisMachine) {
  const int64_t cores = train::NumCores();
  const std::string screen = Unwrapped(PlanOf(GptOn("pp=4,dp=2,tp=2")).screen);
  EXPECT_THAT(screen, HasSubstr(train::SharedCoresText(16, cores)));
  EXPECT_EQ(absl::StrContains(screen, "share the"), cores < 16) << screen;
  EXPECT_THAT(PlanOf(GptOn("")).screen, Not(HasSubstr("share the")));
  EXPECT_THAT(PlanOf(GptOn("pp=4,dp=2,tp=2"), FromCluster(kManyAccelerators)).screen,
              Not(HasSubstr("share the")));
}

TEST(PlanScreenTest, AJobWithoutANameBeginsWithItsSize) {
  proto::Job job = GptOn("");
  job.clear_name();
  job.mutable_graph()->clear_name();
  const std::string screen = PlanOf(job).screen;
  EXPECT_THAT(screen, Not(HasSubstr("\njob       :")));
  EXPECT_THAT(screen, HasSubstr(" parameters on 1 device"));
}

proto::Job GptOverHosts(const std::string& mesh, int64_t devices_per_host) {
  proto::Job job = GptOn(mesh);
  job.mutable_mesh()->set_devices_per_host(devices_per_host);
  return job;
}

TEST(PlanScreenTest, SaysHowTheMeshLiesOverHosts) {
  EXPECT_THAT(PlanOf(GptOverHosts("dp=2,tp=2", 2)).screen,
              HasSubstr("hosts     2 with 2 devices each; tp inside them, dp between them; "));
  EXPECT_THAT(PlanOf(GptOverHosts("dp=4,tp=2", 4)).screen,
              HasSubstr("tp inside them, dp inside and between them; "));
  EXPECT_THAT(PlanOf(GptOverHosts("pp=2,dp=2", 2)).screen,
              HasSubstr("dp inside them, pp between them; "));
  EXPECT_THAT(Unwrapped(PlanOf(GptOverHosts("dp=3,tp=2", 4)).screen),
              HasSubstr("which do not cut the mesh evenly, so transfers know no hosts; 2"));
  EXPECT_THAT(Unwrapped(PlanOf(GptOverHosts("tp=2,dp=3", 2)).screen),
              HasSubstr("so transfers know no hosts; `--place dp,tp` would change that"));
  EXPECT_THAT(PlanOf(GptOverHosts("dp=3,tp=2", 4)).screen, HasSubstr("2 with up to 4 devices"));
  proto::Job unequal = GptOverHosts("pp=2,dp=2", 2);
  proto::Pipeline::StageMesh* entry = unequal.mutable_pipeline()->add_stage_mesh();
  entry->add_stage(1);
  entry->set_mesh("dp=4");
  EXPECT_THAT(Unwrapped(PlanOf(unequal).screen),
              HasSubstr("3 with 2 devices each, which cut the mesh of each stage by itself; "));
  entry->set_mesh("dp=3");
  proto::Pipeline::StageMesh* first = unequal.mutable_pipeline()->add_stage_mesh();
  first->add_stage(0);
  first->set_mesh("dp=1");  // ranks 1 to 3 have two hosts
  EXPECT_THAT(
      Unwrapped(PlanOf(unequal).screen),
      HasSubstr("which do not cut the meshes evenly, so moves send each device its own copy"));
  EXPECT_THAT(PlanOf(GptOn("dp=2,tp=2")).screen, Not(HasSubstr("hosts  ")));
}

TEST(PlanScreenTest, SaysThatTheAxesInsideHostsWereChosen) {
  proto::Job job = GptOverHosts("tp=2,dp=2", 2);
  EXPECT_THAT(PlanOf(job).screen,
              HasSubstr("2 with 2 devices each; dp inside them, tp between them; "));
  const absl::StatusOr<PlacedAxes> placed = PlaceAxes(kPlaceAuto, &job);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const Planned planned = PlanOf(job, sim::JobCosts::Defaults(), *placed);
  const std::string screen = Unwrapped(planned.screen);
  EXPECT_THAT(screen, HasSubstr("2 with 2 devices each; tp inside them, dp between them; "));
  EXPECT_THAT(screen,
              HasSubstr(absl::StrCat(BytesText(placed->bytes), " a step between hosts instead of ",
                                     BytesText(placed->bytes_as_written),
                                     " in the order as written; --place as-written keeps that\n")));
}

// The screen of a mesh that is too large to look at each link.
TEST(PlanScreenTest, CountsTheBytesBetweenManyHosts) {
  proto::Job job = GptOverHosts("dp=36,tp=2", 8);
  ASSERT_TRUE(job::SetField("graph.dim[batch].size=144", &job).ok());
  EXPECT_THAT(Unwrapped(PlanOf(job).screen), HasSubstr("B a step between hosts"));
}

// Hosts of one device: all bytes go from host to host, on few ranks and on more than get links.
TEST(PlanScreenTest, CountsTheBytesBetweenTheHostsOfUnequalStages) {
  for (const auto& [mesh, second] :
       {std::pair("pp=2,dp=2,tp=2", "tp=2"), {"pp=2,dp=36,tp=2", "dp=18,tp=2"}}) {
    for (const int64_t devices_per_host : {1, 8}) {
      SCOPED_TRACE(absl::StrCat(mesh, " and ", second, ", hosts of ", devices_per_host));
      proto::Job job = GptOverHosts(mesh, devices_per_host);
      ASSERT_TRUE(job::SetField("graph.dim[batch].size=144", &job).ok());
      proto::Pipeline::StageMesh* entry = job.mutable_pipeline()->add_stage_mesh();
      entry->add_stage(1);
      entry->set_mesh(second);
      const auto plan = compiler::CompileJob(job, {});
      ASSERT_TRUE(plan.ok()) << plan.status();
      const absl::StatusOr<std::vector<BoxingCost>> costs = CostsOfBoxings(**plan);
      ASSERT_TRUE(costs.ok()) << costs.status();
      double bytes = 0, between = 0;
      for (const BoxingCost& cost : *costs) {
        bytes += cost.bytes;
        between += cost.bytes_between_hosts;
      }
      EXPECT_GT(bytes, 0);
      if (devices_per_host == 1) {
        EXPECT_DOUBLE_EQ(between, bytes);
      } else {
        EXPECT_LT(between, bytes);
        EXPECT_EQ(between > 0, (*plan)->places.num_ranks() > 8);
      }
    }
  }
}

TEST(PlanScreenTest, PlanAndSimPredictTheSameStep) {
  for (const auto& [mesh, queues] : {std::pair("dp=2,tp=2", 1), {"pp=2,dp=2", 1}, {"dp=4", 3}}) {
    proto::Job job = GptOn(mesh);
    if (queues > 1) {
      job.mutable_runtime()->set_device("walled");
      job.mutable_runtime()->set_device_queues(queues);
      job.mutable_runtime()->set_device_depth(64);
    }
    const sim::JobCosts costs = FromCluster(kAccelerators);
    const Planned planned = PlanOf(job, costs);
    ASSERT_TRUE(planned.prediction.report.has_value()) << planned.prediction.why_not;
    const absl::StatusOr<sim::SimulateReport> simulated = sim::Simulate(job, costs.cluster(), {});
    ASSERT_TRUE(simulated.ok()) << simulated.status();
    EXPECT_NEAR(planned.prediction.step_ns, simulated->step_ns, 0.01 * simulated->step_ns) << mesh;
    EXPECT_THAT(planned.screen, HasSubstr("the costs of two hosts"));
  }
}

TEST(PlanScreenTest, TheDefaultClusterCostsWhatTheCompilersDefaultsDo) {
  const proto::Job job = GptOn("dp=2,tp=2");
  const sim::JobCosts defaults = sim::JobCosts::Defaults();
  const Planned planned = PlanOf(job);
  // The same cluster, as if it came from a file.
  const absl::StatusOr<sim::SimulateReport> simulated =
      sim::Simulate(job, defaults.ClusterFor(4), {});
  ASSERT_TRUE(simulated.ok()) << simulated.status();
  EXPECT_NEAR(planned.prediction.step_ns, simulated->step_ns, 0.01 * simulated->step_ns);
  EXPECT_EQ(planned.plan->plan_id, simulated->plan_id);
}

TEST(PlanScreenTest, AClusterWithTooFewDevicesIsSaidAndThePlannedTimesStandIn) {
  const Planned planned = PlanOf(GptOn("dp=4,tp=4"), FromCluster(kAccelerators));
  EXPECT_FALSE(planned.prediction.report.has_value());
  EXPECT_GT(planned.prediction.step_ns, 0);
  EXPECT_THAT(planned.screen, HasSubstr("not simulated: "));
  EXPECT_THAT(planned.screen, HasSubstr("8 devices"));
}

TEST(PlanScreenTest, WhatDoesNotFitTheClusterIsSaidFirst) {
  std::string small(kAccelerators);
  small.replace(small.find("1e9"), 3, "1e4");
  EXPECT_TRUE(absl::StartsWith(PlanOf(GptOn("dp=2"), FromCluster(small)).screen,
                               "fit       DOES NOT FIT: rank "));
}

TEST(PlanScreenTest, DevicesWithoutWorkAreNamed) {
  zoo::TransformerOptions options = Options("tp=8");  // with four heads
  const absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string screen = PlanOf(*job).screen;
  EXPECT_THAT(screen, HasSubstr("warnings  mesh axis tp splits dimension "));
  EXPECT_THAT(screen, HasSubstr("ranks 4 to 7"));
  EXPECT_LE(LinesOf(screen).size(), static_cast<size_t>(kScreenLines)) << screen;
}

TEST(PlanScreenTest, ARuleThatCostsMoreThanItBringsIsNamed) {
  proto::Job job = GptOn("dp=2,tp=2");
  EXPECT_THAT(PlanOf(job).screen, Not(HasSubstr("costs more than it brings")));
  // The rule stands before the others, so it decides the layout of activations between matmuls.
  proto::Rule* rule = job.add_rule();
  rule->set_dim("hidden");
  rule->set_axis("tp");
  for (int r = job.rule_size() - 1; r > 0; --r) job.mutable_rule()->SwapElements(r, r - 1);
  const std::string screen = PlanOf(job).screen;
  EXPECT_THAT(screen, HasSubstr("rule hidden -> tp costs more than it brings"));
  EXPECT_LE(LinesOf(screen).size(), static_cast<size_t>(kScreenLines)) << screen;
}

TEST(PlanScreenTest, AMoveBetweenStagesSaysWhyItIsThere) {
  EXPECT_THAT(PlanOf(GptOn("pp=2")).screen,
              HasSubstr("[] -> [], stage 0 -> 1; why: another stage reads it\n"));
}

TEST(PlanScreenTest, BoxingsThatDifferInTheLayerAloneAreOne) {
  const Planned planned = PlanOf(GptOn("dp=2,tp=2"));
  const absl::StatusOr<std::vector<BoxingCost>> costs = CostsOfBoxings(*planned.plan);
  ASSERT_TRUE(costs.ok()) << costs.status();
  double sum = 0;
  int gradients_of_layers = 0;
  for (size_t i = 0; i < costs->size(); ++i) {
    sum += costs->at(i).bytes;
    if (i > 0) {
      EXPECT_LE(costs->at(i).bytes, costs->at(i - 1).bytes);
    }
    gradients_of_layers += absl::StrContains(costs->at(i).name, "gradients of layers.");
  }
  EXPECT_EQ(gradients_of_layers, 1);
  EXPECT_NEAR(sum, static_cast<double>(*compiler::BytesPerStep(*planned.plan)), 1.0);
}

TEST(PlanSectionsTest, LayoutsOfOneFunctionNameWhatTheCompilerNumbers) {
  const Planned planned = PlanOf(GptOn("dp=2,tp=2"));
  const absl::StatusOr<std::string> block = LayoutsSection(*planned.plan, "block");
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_THAT(*block, HasSubstr("forward layers.0 and 3 more"));
  EXPECT_THAT(*block, HasSubstr("rule heads -> tp"));
  EXPECT_THAT(*block, HasSubstr("no rule splits it"));
  EXPECT_THAT(*block, Not(HasSubstr("forward main.0")));
  const absl::StatusOr<std::string> all = LayoutsSection(*planned.plan, "");
  ASSERT_TRUE(all.ok()) << all.status();
  for (const std::string& line : LinesOf(*all)) {
    const bool numbered = line.size() > 3 && absl::StartsWith(line, "  ") &&
                          (line[2] == 'v' || line[2] == 'a') &&
                          std::isdigit(static_cast<unsigned char>(line[3]));
    EXPECT_FALSE(numbered) << line;
  }
  const absl::Status unknown = LayoutsSection(*planned.plan, "blok").status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("Try: block"));
}

TEST(PlanSectionsTest, NumbersInSequenceBecomeRanges) {
  EXPECT_EQ(RangesText({0, 1, 2, 3, 6}), "0 to 3, 6");
  EXPECT_EQ(RangesText({0, 2, 1, 6, 3}), "0 to 3, 6");
  EXPECT_EQ(RangesText({4, 5}), "4, 5");
  EXPECT_EQ(RangesText({}), "");
  const Planned planned = PlanOf(GptOn("pp=2"));
  EXPECT_THAT(CallsText(*planned.plan, 0), HasSubstr("layers.0 to layers.1"));
}

}  // namespace
}  // namespace weir::plan
