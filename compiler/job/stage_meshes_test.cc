#include "compiler/job/stage_meshes.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::Job JobOf(const std::string& text) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

constexpr char kMesh[] =
    "mesh { axis { name: \"pp\" size: 3 } axis { name: \"dp\" size: 2 } axis { name: \"tp\" size: "
    "2 } }";

proto::Job With(const std::string& entries) {
  return JobOf(std::string(kMesh) + " pipeline { " + entries + " }");
}

sbp::Mesh MeshOf(const proto::Job& job) {
  std::vector<sbp::MeshAxis> axes;
  for (const auto& axis : job.mesh().axis()) axes.push_back({axis.name(), axis.size()});
  return sbp::Mesh(std::move(axes));
}

std::vector<std::string> TextsOf(const proto::Job& job) {
  std::vector<std::string> texts;
  const std::vector<sbp::Mesh> meshes = *ImportStageMeshes(job, MeshOf(job));
  for (const sbp::Mesh& mesh : meshes) texts.push_back(mesh.ToText());
  return texts;
}

std::string FlawOf(const proto::Job& job) {
  return std::string(ImportStageMeshes(job, MeshOf(job)).status().message());
}

TEST(StageMeshes, AStageWithoutAnEntryHasTheMeshOfTheJob) {
  EXPECT_THAT(TextsOf(With("")), IsEmpty());
  EXPECT_THAT(TextsOf(With("stage_mesh { stage: 1 mesh: \"tp=4\" } stage_mesh { stage: 2 }")),
              ::testing::ElementsAre("dp=2,tp=2", "dp=1,tp=4", "dp=1,tp=1"));
  EXPECT_THAT(TextsOf(With("stage_mesh { stage: [0, 2] mesh: \"tp=3, dp=2\" }")),
              ::testing::ElementsAre("dp=2,tp=3", "dp=2,tp=2", "dp=2,tp=3"));
}

TEST(StageMeshes, EntriesHaveNoEffectOnOneStage) {
  proto::Job job = With("stage_mesh { stage: 7 mesh: \"sp=4\" }");
  EXPECT_TRUE(HasStageMeshes(job));
  job.mutable_mesh()->mutable_axis(0)->set_size(1);
  EXPECT_FALSE(HasStageMeshes(job));
  EXPECT_THAT(TextsOf(job), IsEmpty());
  EXPECT_EQ(NumDevices(job, 100), 4);
}

TEST(StageMeshes, AFlawNamesTheEntry) {
  EXPECT_THAT(FlawOf(With("stage_mesh { mesh: \"dp=2\" }")),
              AllOf(HasSubstr("W0497"), HasSubstr("stage: 0")));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: 3 mesh: \"dp=2\" }")),
              AllOf(HasSubstr("W0497"), HasSubstr("stages from 0 to 2"), HasSubstr("stage 3")));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: -1 }")), HasSubstr("W0497"));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: 1 mesh: \"sp=2\" }")),
              AllOf(HasSubstr("W0497"), HasSubstr("of stage 1"), HasSubstr("axis sp")));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: 1 mesh: \"pp=2\" }")), HasSubstr("W0497"));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: 1 } stage_mesh { stage: [0, 1] }")),
              AllOf(HasSubstr("W0497"), HasSubstr("a second mesh for stage 1")));
  EXPECT_THAT(FlawOf(With("stage_mesh { stage: 1 mesh: \"dp\" }")),
              AllOf(HasSubstr("W0101"), HasSubstr("pipeline.stage_mesh of stage 1")));
}

TEST(StageMeshes, RanksHaveNoOtherOrder) {
  proto::Job job = With("stage_mesh { stage: 1 }");
  for (const char* name : {"dp", "pp", "tp"}) job.mutable_mesh()->add_rank_order(name);
  EXPECT_THAT(FlawOf(job), AllOf(HasSubstr("W0498"), HasSubstr("mesh.rank_order")));
}

TEST(StageMeshes, DevicesAreThoseOfAllStages) {
  EXPECT_EQ(NumDevices(With(""), 100), 12);
  const proto::Job job = With("stage_mesh { stage: 1 mesh: \"tp=4\" } stage_mesh { stage: 2 }");
  EXPECT_EQ(NumDevices(job, 100), 9);
  EXPECT_EQ(NumDevices(job, 5), 5);
  EXPECT_EQ(NumDevices(With(""), 5), 5);
}

TEST(StageMeshes, TheLargestMeshHasTheLargestSizeOfEachAxis) {
  EXPECT_EQ(LargestMeshOf(With("")).ToText(), MeshOf(With("")).ToText());
  EXPECT_EQ(LargestMeshOf(With("stage_mesh { stage: [1, 2] mesh: \"tp=4\" }")).ToText(),
            "pp=3,dp=2,tp=4");
  EXPECT_EQ(LargestMeshOf(With("stage_mesh { stage: [0, 1, 2] mesh: \"tp=4\" }")).ToText(),
            "pp=3,dp=1,tp=4");
  EXPECT_EQ(LargestMeshOf(With("stage_mesh { stage: 7 }")).ToText(), MeshOf(With("")).ToText())
      << "refused";
}

TEST(StageMeshes, TheTextNamesUnequalMeshes) {
  const auto text_of = [](const proto::Job& job) {
    const sbp::Places places = sbp::PlacesWithMeshes(*ImportStageMeshes(job, MeshOf(job)));
    return MeshText(MeshOfStages(MeshOf(job), places), places);
  };
  EXPECT_EQ(text_of(With("stage_mesh { stage: 0 }")),
            "pp=3: stage 0 dp=1,tp=1, stages 1 to 2 dp=2,tp=2");
  EXPECT_EQ(text_of(With("stage_mesh { stage: [0, 1, 2] mesh: \"tp=3\" }")), "pp=3,dp=1,tp=3");
}

TEST(StageMeshes, WhatNeedsEqualStagesSaysSo) {
  EXPECT_TRUE(CheckEqualStages(With(""), "a search", "try").ok());
  EXPECT_THAT(CheckEqualStages(With("stage_mesh { stage: 0 }"), "a search", "try").message(),
              AllOf(HasSubstr("W0498"), HasSubstr("a search"), HasSubstr("try")));
}

}  // namespace
}  // namespace weir::compiler
