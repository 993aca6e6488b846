// Tests that the JSON of a plan says what the screen and the sections say.
#include "tools/plan/plan_json.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/plan/layout_list.h"
#include "tools/plan/plan_screen.h"
#include "tools/plan/plan_summary.h"
#include "tools/zoo/gpt.h"

namespace weir::plan {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// A small GPT on a mesh, planned by the default costs.
class PlanJsonTest : public ::testing::Test {
 protected:
  void PlanOn(const std::string& mesh) {
    zoo::TransformerOptions options;
    options.layers = 4;
    options.hidden = 64;
    options.heads = 4;
    options.sequence = 32;
    options.training.batch = 16;
    options.training.micro_batches = 4;
    options.training.mesh = mesh;
    const absl::StatusOr<proto::Job> job = zoo::GptJob(options);
    ASSERT_TRUE(job.ok()) << job.status();
    compiler::CompileOptions compile;
    compile.costs = &costs_.model();
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
        compiler::CompileJob(*job, compile);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    prediction_ = sim::PredictStep(*plan_, costs_);
    absl::StatusOr<train::NeedAndPlans> memory = train::NeedAndPlansOf(*plan_);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }

  Json JsonOf(RanksInJson ranks) const {
    const absl::StatusOr<Json> json = PlanJson(*plan_, costs_, prediction_, memory_, {}, ranks);
    EXPECT_TRUE(json.ok()) << json.status();
    return json.ok() ? *json : Json();
  }

  sim::JobCosts costs_ = sim::JobCosts::Defaults();
  std::unique_ptr<compiler::LogicalPlan> plan_;
  sim::StepPrediction prediction_;
  train::NeedAndPlans memory_;
};

TEST_F(PlanJsonTest, HasTheSentencesOfTheScreenAndTheFiguresBehindThem) {
  PlanOn("pp=2,tp=2");
  const Json json = JsonOf(RanksInJson::kAll);
  const absl::StatusOr<PlanSummary> summary =
      Summarize(*plan_, costs_, prediction_, memory_, PlacedAxes());
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(json["fit"]["text"], summary->fit);
  EXPECT_EQ(json["fit"]["fits"], summary->fits);
  EXPECT_EQ(json["fit"]["rank_bytes"], memory_.need.bytes);
  EXPECT_EQ(json["lines"]["step"], summary->step);
  EXPECT_EQ(json["lines"]["bytes"], summary->bytes);
  EXPECT_FALSE(json["lines"].contains("hosts")) << "the plan knows of one host";
  EXPECT_EQ(json["warnings"], Json(summary->warnings));
  EXPECT_EQ(json["prediction"]["ranks_simulated"], 4);
  ASSERT_EQ(json["devices"].size(), 4u);
  for (const Json& device : json["devices"]) {
    EXPECT_NEAR(device["computing"].get<double>() + device["packing"].get<double>() +
                    device["waiting"].get<double>(),
                1, 1e-9);
  }
  ASSERT_EQ(json["boxings"].size(), summary->boxings.size());
  double bytes = 0;
  for (const Json& boxing : json["boxings"]) bytes += boxing["bytes_per_step"].get<double>();
  EXPECT_DOUBLE_EQ(bytes, json["bytes_per_step"].get<double>());
  const absl::StatusOr<std::string> screen =
      PlanScreen(*plan_, costs_, prediction_, memory_, PlacedAxes());
  ASSERT_TRUE(screen.ok()) << screen.status();
  EXPECT_THAT(*screen, HasSubstr(json["boxings"][0]["layouts"].get<std::string>().substr(0, 60)));
}

TEST_F(PlanJsonTest, ListsEveryTensorWithItsLayoutAndAReason) {
  PlanOn("dp=2,tp=2");
  const Json json = JsonOf(RanksInJson::kAll);
  const std::vector<FunctionLayouts> functions = ListLayouts(*plan_);
  ASSERT_EQ(json["functions"].size(), functions.size());
  int weights = 0, outputs = 0;
  for (size_t f = 0; f < functions.size(); ++f) {
    const Json& function = json["functions"][f];
    EXPECT_EQ(function["name"], functions[f].function);
    EXPECT_EQ(function["calls"], functions[f].calls);
    ASSERT_EQ(function["tensors"].size(), functions[f].tensors.size());
    for (const Json& tensor : function["tensors"]) {
      EXPECT_THAT(tensor["layout"].get<std::string>(), HasSubstr("dp: ")) << tensor;
      EXPECT_FALSE(tensor["why"].get<std::string>().empty()) << tensor;
      weights += tensor["role"] == "weight" ? 1 : 0;
      outputs += tensor["role"] == "output" ? 1 : 0;
    }
  }
  EXPECT_GT(weights, 0);
  EXPECT_GT(outputs, 0);
}

TEST_F(PlanJsonTest, RanksThatStandForAllAreOneOfEachStageOnALargeMesh) {
  PlanOn("pp=2,dp=2");
  EXPECT_EQ(JsonOf(RanksInJson::kAll)["ranks"], JsonOf(RanksInJson::kLookedAt)["ranks"]);
  PlanOn("pp=2,dp=4,tp=4");
  EXPECT_EQ(JsonOf(RanksInJson::kAll)["ranks"].size(), 32u);
  EXPECT_EQ(JsonOf(RanksInJson::kLookedAt)["ranks"].size(), 2u);
}

}  // namespace
}  // namespace weir::plan
