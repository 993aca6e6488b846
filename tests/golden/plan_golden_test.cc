// Compares the plans of small jobs with golden files: tests/golden/plans/JOB.textproto is the job,
// and JOB.plan.txt is the output of `weir plan`. The smallest jobs also have the plan of rank 0,
// JOB.rank0.textproto. Every text names the input that it was made from.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/plan_text.h"
#include "tools/job/job_file.h"
#include "tools/job/job_text.h"
#include "tools/plan/plan_sections.h"

namespace weir::golden {
namespace {

using google::protobuf::TextFormat;
using google::protobuf::util::MessageDifferencer;

constexpr char kFolder[] = "tests/golden/plans/";
// The jobs that are small enough for a person to read the plan of a rank.
const std::vector<std::string> kWithRankPlan = {"mlp_data_parallel", "mlp_pipeline",
                                                "mlp_zero_three"};

std::vector<std::string> JobNames() {
  std::vector<std::string> names = NamesIn(kFolder, ".textproto");
  names.erase(
      std::remove_if(names.begin(), names.end(),
                     [](const std::string& name) { return name.find('.') != std::string::npos; }),
      names.end());
  return names;
}

class PlanGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = absl::StrCat(kFolder, GetParam(), ".textproto");
    absl::StatusOr<proto::Job> job = job::ParseJob(ReadGoldenInput(path), path);
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *job;
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job_, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = std::move(*plan);
  }

  std::vector<proto::RankPlan> AllRanks(const compiler::LogicalPlan& plan) {
    std::vector<proto::RankPlan> ranks;
    for (RankId rank : plan.places.all_ranks()) {
      absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(plan, rank);
      EXPECT_TRUE(lowered.ok()) << "rank " << rank << ": " << lowered.status();
      if (lowered.ok()) ranks.push_back(*std::move(lowered));
    }
    return ranks;
  }

  proto::Job job_;
  std::unique_ptr<compiler::LogicalPlan> plan_;
};

TEST_P(PlanGoldenTest, TheExplanationIsAsReviewed) {
  absl::StatusOr<std::string> text = plan::ExplainPlan(*plan_);
  ASSERT_TRUE(text.ok()) << text.status();
  ExpectGolden(absl::StrCat(kFolder, GetParam(), ".plan.txt"), *text);
}

TEST_P(PlanGoldenTest, ThePlanOfRankZeroIsAsReviewed) {
  if (std::find(kWithRankPlan.begin(), kWithRankPlan.end(), GetParam()) == kWithRankPlan.end())
    return;
  absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(*plan_, RankId(0));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ExpectGolden(absl::StrCat(kFolder, GetParam(), ".rank0.textproto"), PlanText(*lowered));
}

TEST_P(PlanGoldenTest, ThePlanOfEveryRankRoundTripsThroughText) {
  for (const proto::RankPlan& plan : AllRanks(*plan_)) {
    proto::RankPlan again;
    ASSERT_TRUE(TextFormat::ParseFromString(PlanText(plan), &again));
    EXPECT_TRUE(MessageDifferencer::Equals(plan, again)) << "rank " << plan.rank();
    std::string text;
    ASSERT_TRUE(TextFormat::PrintToString(plan, &text));
    ASSERT_TRUE(TextFormat::ParseFromString(text, &again));
    EXPECT_EQ(plan.SerializeAsString(), again.SerializeAsString()) << "rank " << plan.rank();
  }
}

TEST_P(PlanGoldenTest, TheSameJobGivesTheSameBytesOnEveryRank) {
  auto second = compiler::CompileJob(job_, {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(plan_->plan_id, (*second)->plan_id);
  std::vector<proto::RankPlan> ranks = AllRanks(*plan_), again = AllRanks(**second);
  ASSERT_EQ(ranks.size(), again.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].SerializeAsString(), again[rank].SerializeAsString()) << "rank " << rank;
  }
  EXPECT_EQ(*plan::ExplainPlan(*plan_), *plan::ExplainPlan(**second));
}

TEST_P(PlanGoldenTest, TheJobRoundTripsThroughItsText) {
  const std::string text = job::JobText(job_, "A job.");
  absl::StatusOr<proto::Job> again = job::ParseJob(text, "text");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(MessageDifferencer::Equals(job_, *again)) << text;
  EXPECT_EQ(text, job::JobText(*again, "A job."));
}

TEST_P(PlanGoldenTest, EveryLayoutRoundTripsThroughItsText) {
  int64_t layouts = 0;
  auto check = [&](const sbp::Layout& layout) {
    if (layout.empty()) return;
    absl::StatusOr<sbp::Layout> again =
        sbp::ParseLayout(ToText(layout, plan_->stage_mesh), plan_->stage_mesh);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, layout) << ToText(layout, plan_->stage_mesh);
    ++layouts;
  };
  for (const auto& function : plan_->module.functions) {
    for (const auto& value : function.values) check(value.layout);
  }
  for (const auto& value : plan_->module.values) check(value.layout);
  EXPECT_EQ(layouts > 0, plan_->stage_mesh.num_axes() > 0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, PlanGoldenTest, ::testing::ValuesIn(JobNames()),
                         [](const auto& test) { return test.param; });

TEST(PlanGoldenFilesTest, EveryGoldenFileHasItsJob) {
  EXPECT_EQ(NamesIn(kFolder, ".plan.txt"), JobNames());
  EXPECT_EQ(NamesIn(kFolder, ".rank0.textproto"), kWithRankPlan);
}

TEST(PlanGoldenFilesTest, ADifferenceNamesItsFirstLine) {
  EXPECT_EQ(FirstDifference("a\nb\nc\n", "a\nb\nc\n"), "");
  EXPECT_EQ(FirstDifference("a\nb\nc", "a\nx\nc"), "line 2:\n   a\n - b\n - c\n + x\n + c\n");
  EXPECT_NE(FirstDifference("a", "a\n"), "");
}

}  // namespace
}  // namespace weir::golden
