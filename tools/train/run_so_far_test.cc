#include "tools/train/run_so_far.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

// Lets a start do the steps from `from` to `to`, in `seconds`. The loss of step n is 100 - n.
void DoSteps(int64_t from, int64_t to, double seconds, RunSoFar* run) {
  for (int64_t step = from; step < to; ++step) run->NoteLoss(step, 100 - static_cast<double>(step));
  TrainResult start;
  start.steps_done = to;
  start.steps_here = to - from;
  start.seconds_here = seconds;
  start.checkpoints.written = 1;
  run->Note(start);
}

TEST(RunSoFarTest, ARunOfOneStartIsThatStart) {
  RunSoFar run;
  run.Begin(40);
  DoSteps(40, 50, 2, &run);
  const TrainResult whole = run.Whole();
  EXPECT_EQ(whole.steps_done, 50);
  EXPECT_EQ(whole.steps_here, 10);
  EXPECT_EQ(whole.seconds_here, 2);
  EXPECT_EQ(whole.first_loss, 60);
  EXPECT_EQ(whole.last_loss, 51);
  EXPECT_EQ(whole.checkpoints.written, 1);
}

TEST(RunSoFarTest, StepsThatAreDoneAgainCountOnceAndTheirTimeTwice) {
  RunSoFar run;
  run.Begin(0);
  DoSteps(0, 50, 5, &run);
  run.Begin(40);
  DoSteps(40, 60, 2, &run);
  const TrainResult whole = run.Whole();
  EXPECT_EQ(whole.steps_here, 60);
  EXPECT_EQ(whole.seconds_here, 7);
  EXPECT_EQ(whole.first_loss, 100);
  EXPECT_EQ(whole.last_loss, 41);
  EXPECT_EQ(whole.checkpoints.written, 2);
}

TEST(RunSoFarTest, AStartWithoutAStepHasTheStepsOfItsCheckpoint) {
  RunSoFar run;
  run.Begin(0);
  DoSteps(0, 50, 5, &run);
  run.Begin(40);
  EXPECT_EQ(run.StepsAt(40), 40);
  EXPECT_EQ(run.Whole().steps_done, 40);
  EXPECT_EQ(run.Whole().steps_here, 40);
  EXPECT_THAT(run.last_loss(), Optional(61.0));
  run.Begin(40);  // and one more
  EXPECT_EQ(run.Whole().steps_here, 40);
  EXPECT_EQ(run.Whole().seconds_here, 5);
}

TEST(RunSoFarTest, StepsBeforeTheFirstStartAreNotOfTheRun) {
  RunSoFar run;
  run.Begin(40);
  EXPECT_EQ(run.StepsAt(40), 0);
  EXPECT_EQ(run.last_loss(), std::nullopt);
  EXPECT_THAT(run.NothingDoneText(), HasSubstr("before the first step of this run"));
}

TEST(RunSoFarTest, ARunThatGoesBackToItsBeginningSaysWhatIsLost) {
  RunSoFar run;
  run.Begin(40);
  DoSteps(40, 47, 1, &run);
  run.Begin(40);
  EXPECT_EQ(run.StepsAt(40), 0);
  EXPECT_THAT(run.NothingDoneText(), HasSubstr("7 steps of this run are lost"));
}

TEST(RunSoFarTest, ARecoveryForgetsTheLossesOfStepsThatAreLost) {
  RunSoFar run;
  run.Begin(0);
  DoSteps(0, 9, 1, &run);
  run.GoBackTo(4);
  EXPECT_THAT(run.last_loss(), Optional(97.0));
}

TEST(RunSoFarTest, AnEvaluationOfAnEarlierStartStaysUntilTheNextOne) {
  RunSoFar run;
  run.Begin(0);
  TrainResult start;
  start.steps_done = 5;
  start.evaluation.emplace().batches = 3;
  run.Note(start);
  run.Begin(4);
  ASSERT_TRUE(run.Whole().evaluation.has_value());
  start.evaluation->batches = 4;
  run.Note(start);
  EXPECT_EQ(run.Whole().evaluation->batches, 4);
  run.Begin(0);
  EXPECT_FALSE(run.Whole().evaluation.has_value()) << "no step of the run is left";
}

}  // namespace
}  // namespace weir::train
