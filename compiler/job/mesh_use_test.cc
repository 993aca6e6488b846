#include "compiler/job/mesh_use.h"

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Compiles a regression of four heads of two columns each, on `mesh`. `more` is added to the job.
std::unique_ptr<LogicalPlan> PlanOf(const std::vector<std::pair<std::string, int>>& mesh,
                                    const std::string& more, int zero_stage = 0) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(absl::StrCat(R"(
    graph {
      dim { name: "rows" size: 6 } dim { name: "heads" size: 8 unit: 2 } dim { name: "wide" size: 64 }
      main: "main"
      function {
        name: "main"
        input { name: "x" type: "f32[rows, wide]" }
        parameter { name: "w" type: "f32[wide, heads]" init { normal { std: 0.1 } } }
        parameter { name: "out" type: "f32[heads, wide]" init { normal { std: 0.1 } } }
        node { name: "h" op: "matmul" input: ["x", "w"] }
        node { name: "y" op: "matmul" input: ["h", "out"] }
        node { name: "loss" op: "reduce_mean" input: "y" }
        output: "loss"
      }
    }
    training { steps: 1 micro_batches: 1 optimizer { adamw {} } schedule { learning_rate: 0.1 } }
    data { synthetic {} })",
                                                                         more),
                                                            &job));
  job.mutable_training()->set_zero_stage(zero_stage);
  for (const auto& [name, size] : mesh) {
    proto::MeshAxisSpec* axis = job.mutable_mesh()->add_axis();
    axis->set_name(name);
    axis->set_size(size);
  }
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

std::string Refusal(const LogicalPlan& plan) { return std::string(CheckMeshUse(plan).message()); }

TEST(MeshUse, AnAxisThatNoRuleSplitsAnythingOverIsRefusedWithTheAxesOfTheRules) {
  const auto plan = PlanOf({{"dp", 2}, {"sp", 3}},
                           "rule { dim: 'rows' axis: 'dp' } rule { dim: 'heads' axis: 'tp' }");
  EXPECT_THAT(Refusal(*plan), AllOf(HasSubstr("W0920 at mesh axis sp"),
                                    HasSubstr("its 3 devices would all do the same work"),
                                    HasSubstr("speak of tp.")));
}

TEST(MeshUse, AMisspeltNameOfAnAxisIsAdvisedFirst) {
  const std::string rules = "rule { dim: 'rows' axis: 'dp' } rule { dim: 'heads' axis: ";
  EXPECT_THAT(Refusal(*PlanOf({{"ddp", 2}}, rules + "'tp' }")),
              HasSubstr("Try: dp=2, as rules of the job name the axis dp, or leave out the axis"));
  EXPECT_THAT(Refusal(*PlanOf({{"tp", 2}}, rules + "'tb' }")),
              HasSubstr("Try: rule { dim: \"heads\" axis: \"tp\" }, as the mesh has no axis tb, or "
                        "leave out the axis"));
  EXPECT_THAT(Refusal(*PlanOf({{"sp", 2}}, rules + "'tp' }")), HasSubstr("Try: rule {"))
      << "sp and tp are different axes";
}

TEST(MeshUse, TheRuleThatIsAdvisedWorksForTheJob) {
  for (const char* rules :
       {"", "rule { dim: 'rows' axis: 'tp' }", "rule { dim: 'rows' axis: 'dp' }"}) {
    const std::string refusal = Refusal(*PlanOf({{"dp", 2}, {"sp", 2}}, rules));
    const size_t begin = refusal.find("rule {"), end = refusal.find('}', begin);
    ASSERT_NE(begin, std::string::npos) << refusal;
    const std::string advised = refusal.substr(begin, end + 1 - begin);
    EXPECT_THAT(advised, Not(HasSubstr("batch"))) << "the job has no such dimension";
    const std::string axis = refusal.substr(refusal.find("mesh axis ") + 10, 2);
    EXPECT_EQ(Refusal(*PlanOf({{axis, 2}}, absl::StrCat(rules, advised))), "") << advised;
  }
  EXPECT_THAT(Refusal(*PlanOf({{"sp", 65}}, "")), HasSubstr("Try: leave out the axis."))
      << "no dimension has so many parts";
}

TEST(MeshUse, ADimensionAWeightOrAStateIsEnoughToUseAnAxis) {
  EXPECT_EQ(Refusal(*PlanOf({{"dp", 2}}, "rule { dim: 'rows' axis: 'dp' }")), "");
  EXPECT_EQ(Refusal(*PlanOf({{"tp", 2}}, "rule { dim: 'heads' axis: 'tp' scope: PARAMETERS }")),
            "");
  EXPECT_EQ(Refusal(*PlanOf({{"dp", 2}}, "", 1)), "");
  EXPECT_EQ(Refusal(*PlanOf({{"sp", 1}}, "")), "") << "one device has nothing to share";
}

TEST(MeshUse, ADimensionWithFewerUnitsThanTheAxisHasDevicesNamesTheRanksWithoutAPart) {
  const auto plan = PlanOf({{"dp", 2}, {"tp", 6}},
                           "rule { dim: 'rows' axis: 'dp' } rule { dim: 'heads' axis: 'tp' }");
  EXPECT_EQ(Refusal(*plan), "");
  EXPECT_THAT(
      DevicesWithoutWork(*plan),
      ElementsAre(
          AllOf(HasSubstr("mesh axis tp splits dimension heads, which has 4 units, over 6 devices"),
                HasSubstr("ranks 4 to 5, 10 to 11 hold no part of it (main.0/w), nor of anything "
                          "else that the axis splits"))));
  // Another dimension gives all ranks work, except for the heads.
  const auto wide =
      PlanOf({{"tp", 6}},
             "rule { dim: 'heads' axis: 'tp' } layout { tensor: 'main.0/y' sbp: '[tp: S(1)]' }");
  EXPECT_THAT(DevicesWithoutWork(*wide),
              ElementsAre(AllOf(HasSubstr("ranks 4 to 5 hold no part of it"),
                                Not(HasSubstr("anything else")))));
}

TEST(MeshUse, WhatIsUnevenButNowhereEmptyIsNotSpokenOf) {
  EXPECT_THAT(DevicesWithoutWork(*PlanOf({{"dp", 4}}, "rule { dim: 'rows' axis: 'dp' }")),
              IsEmpty());
}

}  // namespace
}  // namespace weir::compiler
