#include "tools/fleet/loss_outlook.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using OnFailure = LossFacts::OnFailure;

LossFacts ElasticFacts() {
  LossFacts facts;
  facts.on_failure = OnFailure::kElastic;
  facts.has_checkpoints = true;
  facts.checkpoint_every = 100;
  facts.keeps_states = true;
  return facts;
}

TEST(LossOutlookTest, WithoutOnFailureALossEndsTheJob) {
  LossFacts facts;
  EXPECT_THAT(LossOutlook(facts),
              AllOf(StartsWith("a lost process ends the job (--on-failure stop)"),
                    HasSubstr("costs all steps of the run")));
  facts.has_checkpoints = true;
  EXPECT_THAT(LossOutlook(facts), HasSubstr("costs all steps"));  // that of the end comes too late
  facts.checkpoint_every = 100;
  EXPECT_THAT(LossOutlook(facts), AllOf(HasSubstr("--resume goes on from the last checkpoint"),
                                        HasSubstr("one every 100 steps"), Not(HasSubstr("costs"))));
}

TEST(LossOutlookTest, ARestartCostsTheStepsSinceTheLastCheckpoint) {
  LossFacts facts;
  facts.on_failure = OnFailure::kRestart;
  EXPECT_THAT(LossOutlook(facts),
              HasSubstr("costs all steps of the run, which writes no checkpoints on the way "
                        "(--checkpoint, --checkpoint-every): all processes"));
  facts.has_checkpoints = true;
  EXPECT_THAT(LossOutlook(facts), HasSubstr("on the way (--checkpoint-every)"));
  facts.checkpoint_every_seconds = 60;
  EXPECT_THAT(LossOutlook(facts), HasSubstr("of which there is one every 1m00s: all processes"));
}

TEST(LossOutlookTest, WithReplicasALossCostsTheStepsSinceTheLastCopies) {
  EXPECT_THAT(LossOutlook(ElasticFacts()),
              AllOf(StartsWith("a lost process costs the steps since the last copies in memory"),
                    HasSubstr("lost at once, that costs the steps since the last checkpoint")));
}

TEST(LossOutlookTest, BuddiesBoundTheStepsThatALossCosts) {
  LossFacts facts = ElasticFacts();
  facts.buddy_every = 5;
  EXPECT_THAT(LossOutlook(facts), StartsWith("a lost process costs about 5 steps at most"));
}

TEST(LossOutlookTest, StatesThatNobodyElseHasComeFromACheckpoint) {
  LossFacts facts = ElasticFacts();
  facts.end_with_process = {RankId(2), RankId(3)};
  facts.end_with_host = facts.end_with_process;
  EXPECT_THAT(LossOutlook(facts),
              AllOf(HasSubstr("one of ranks 2-3, whose states no other process has, costs the "
                              "steps since the last checkpoint"),
                    HasSubstr("--buddy-every"), Not(HasSubstr("host"))));
}

TEST(LossOutlookTest, WithoutAnyReplicaEachLossComesFromACheckpoint) {
  LossFacts facts = ElasticFacts();
  facts.end_with_process = facts.end_with_host = {RankId(0), RankId(1)};
  facts.all_end_with_process = facts.has_other_process = true;
  EXPECT_EQ(LossOutlook(facts),
            "a lost process costs the steps since the last checkpoint, of which there is one every "
            "100 steps: no other process has its states (--buddy-every N lets another process keep "
            "them)");
  facts.has_other_process = false;
  EXPECT_THAT(LossOutlook(facts), AllOf(HasSubstr(": no other process has its states"),
                                        Not(HasSubstr("--buddy-every"))));
}

TEST(LossOutlookTest, StatesOfOneHostComeFromACheckpointIfTheHostIsLost) {
  LossFacts facts = ElasticFacts();
  facts.end_with_host = {RankId(0)};
  EXPECT_THAT(LossOutlook(facts), HasSubstr("a lost host with rank 0, whose states no other host"));
}

TEST(LossOutlookTest, WithDelayedGradientsStatesComeFromACheckpoint) {
  LossFacts facts = ElasticFacts();
  facts.keeps_states = false;
  EXPECT_THAT(LossOutlook(facts),
              AllOf(StartsWith("a lost process costs the steps since the last checkpoint"),
                    HasSubstr("gradient_delay")));
}

}  // namespace
}  // namespace weir::fleet
