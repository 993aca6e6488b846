#include "tools/train/nonfinite_steps.h"

#include <cmath>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/train/run_so_far.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(NonfiniteStepsTest, TellsEachPolicyItsOwn) {
  const double nan = std::nan(""), inf = INFINITY;
  StepMetrics fine = {{"loss", 1.0}, {"grad_norm", 1.0}}, bad = {{"loss", inf}, {"grad_norm", nan}},
              bad_norm = {{"loss", 1.0}, {"grad_norm", inf}},
              bad_loss = {{"loss", nan}, {"grad_norm", 1.0}};
  RunSoFar run;
  NonfiniteSteps stop(OnNonfinite::kStop, LossScale::kNoneOrFixed, "loss", &run);
  EXPECT_EQ(stop.Look(0, &fine), "");
  EXPECT_FALSE(stop.first().has_value());
  EXPECT_EQ(stop.Look(1, &bad_loss), "");
  EXPECT_EQ(stop.Look(2, &bad), "");
  EXPECT_EQ(stop.first()->step, 1);
  EXPECT_EQ(stop.first()->found, "loss nan");
  EXPECT_EQ(stop.first_left_out(), 2);

  NonfiniteSteps skip(OnNonfinite::kSkip, LossScale::kNoneOrFixed, "loss", &run);
  EXPECT_THAT(skip.Look(0, &bad),
              HasSubstr("step 1: loss inf, gradient norm nan; its update is left out (1 so far)"));
  int told = 1;
  for (int64_t step = 1; step < 100; ++step) told += skip.Look(step, &bad_norm).empty() ? 0 : 1;
  EXPECT_EQ(run.num_skipped(), 100);
  EXPECT_EQ(skip.Summary(), "100 updates were left out, since gradients were not finite");
  EXPECT_EQ(told, 3 + 5);  // 1, 2, 3; 4, 8, 16, 32, 64

  NonfiniteSteps go_on(OnNonfinite::kContinue, LossScale::kNoneOrFixed, "loss", &run);
  EXPECT_THAT(go_on.Look(0, &bad), HasSubstr("weights are likely lost"));
  EXPECT_EQ(go_on.Look(1, &bad), "") << "once";
}

TEST(NonfiniteStepsTest, UpdatesLeftOutCountOverAllStartsAndOnceEach) {
  StepMetrics overflow = {{"loss", 1.0}, {"grad_norm", INFINITY}, {"loss_scale", 2048}};
  RunSoFar run;
  run.Begin(0);
  NonfiniteSteps first(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  for (const int64_t step : {2, 5, 7}) first.Look(step, &overflow);
  EXPECT_EQ(first.Summary(), "3 updates were left out, since gradients were not finite");
  run.Begin(6);  // the step 7 is lost
  NonfiniteSteps second(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  EXPECT_EQ(second.Summary(), "2 updates were left out, since gradients were not finite");
  EXPECT_THAT(second.Look(7, &overflow), HasSubstr("(3 so far"));
  EXPECT_EQ(overflow.at("skipped_updates"), 3);
  run.GoBackTo(4);  // a recovery
  EXPECT_EQ(second.Summary(), "1 update was left out, since gradients were not finite");
}

TEST(NonfiniteStepsTest, AnOverflowOfScaledGradientsIsNoError) {
  StepMetrics fine = {{"loss", 1.0}, {"grad_norm", 1.0}, {"loss_scale", 1024}},
              overflow = {{"loss", 1.0}, {"grad_norm", INFINITY}, {"loss_scale", 2048}},
              tiny = {{"loss", 1.0}, {"grad_norm", INFINITY}, {"loss_scale", 0x1p-21}},
              bad_loss = {{"loss", INFINITY}, {"grad_norm", INFINITY}, {"loss_scale", 1024}};
  RunSoFar run;
  NonfiniteSteps stop(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  EXPECT_THAT(stop.Look(0, &overflow), HasSubstr("overflow with a loss scale of 2048"));
  EXPECT_EQ(overflow.at("skipped_updates"), 1);
  EXPECT_EQ(stop.Look(1, &fine), "");
  EXPECT_EQ(fine.at("skipped_updates"), 1);
  EXPECT_FALSE(stop.first().has_value());
  stop.Look(2, &bad_loss);
  ASSERT_TRUE(stop.first().has_value());
  EXPECT_EQ(stop.first()->step, 2);
  EXPECT_EQ(stop.first_left_out(), 2) << "a loss without an overflow";
  const int64_t skipped = run.num_skipped();
  EXPECT_EQ(stop.Look(3, &overflow), "") << "the run is at its end";
  EXPECT_EQ(run.num_skipped(), skipped);
  NonfiniteSteps finite_norm(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  StepMetrics lone_loss = {{"loss", NAN}, {"grad_norm", 1.0}, {"loss_scale", 1024}};
  finite_norm.Look(4, &lone_loss);
  EXPECT_EQ(finite_norm.first_left_out(), 4);
  NonfiniteSteps between_updates(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  StepMetrics without_update = {{"loss", NAN}};
  between_updates.Look(4, &without_update);
  between_updates.Look(5, &bad_loss);
  EXPECT_EQ(between_updates.first_left_out(), 4)
      << "the update after step 6 is that of step 5, too";
  EXPECT_EQ(without_update.count("skipped_updates"), 0u);
  NonfiniteSteps too_small(OnNonfinite::kStop, LossScale::kAdapts, "loss", &run);
  too_small.Look(0, &tiny);
  EXPECT_TRUE(too_small.first().has_value()) << "no overflow explains it";
  EXPECT_EQ(too_small.first_left_out(), 0);
  NonfiniteSteps unscaled(OnNonfinite::kStop, LossScale::kNoneOrFixed, "loss", &run);
  StepMetrics named_so = {{"loss", 1.0}, {"grad_norm", INFINITY}, {"loss_scale", 2048}};
  unscaled.Look(0, &named_so);
  EXPECT_EQ(unscaled.first_left_out(), 0) << "the metric is the model's own";
  EXPECT_EQ(named_so.count("skipped_updates"), 0u);
}

TEST(NonfiniteStepsTest, ALossInTheMiddleOfAnUpdateIsNoOverflowOfItsGradients) {
  const StepMetrics bad_loss = {{"loss", NAN}}, fine = {{"loss", 1.0}},
                    bad_norm = {{"loss", 1.0}, {"grad_norm", NAN}, {"loss_scale", 1024}};
  for (const OnNonfinite policy : {OnNonfinite::kSkip, OnNonfinite::kContinue}) {
    RunSoFar run;
    NonfiniteSteps steps(policy, LossScale::kAdapts, "loss", &run);
    const auto look = [&steps](int64_t step, StepMetrics report) {
      return steps.Look(step, &report);
    };
    EXPECT_THAT(look(0, bad_loss),
                HasSubstr("step 1: loss nan; its update is left out unless the gradients are"));
    look(1, fine);
    EXPECT_EQ(look(2, bad_norm),
              policy == OnNonfinite::kSkip
                  ? "WARNING: step 3: gradient norm nan; its update is left out (1 so far)"
                  : "");
    EXPECT_EQ(run.num_skipped(), 1);
    look(3, fine);
    EXPECT_THAT(look(5, bad_norm), HasSubstr("overflow with a loss scale of 1024"));
    look(6, bad_loss);
    look(3, fine);  // a recovery
    EXPECT_THAT(look(5, bad_norm), HasSubstr("overflow with a loss scale of 1024"));
  }
  RunSoFar run;
  NonfiniteSteps unscaled(OnNonfinite::kContinue, LossScale::kNoneOrFixed, "loss", &run);
  StepMetrics report = bad_loss;
  EXPECT_THAT(unscaled.Look(0, &report), HasSubstr("weights are likely lost"));
}

TEST(NonfiniteStepsTest, AdvisesAFixedLossScaleFirstAndNothingThatIsSet) {
  proto::Training training;
  training.set_precision(proto::Training::F16);
  training.mutable_loss_scale()->set_fixed(1024);
  training.mutable_optimizer()->set_clip_norm(0.5);
  EXPECT_EQ(
      AdviceOnNonfinite(training, "rank 0, forward"),
      "a training.loss_scale.fixed below 1024, or a loss scale that adapts (without `fixed`); "
      "or a lower training.schedule.learning_rate or warm-up; or --on-nonfinite skip, which "
      "leaves such updates out");
  EXPECT_THAT(AdviceOnNonfinite(training, "x of the data"), StartsWith("data without such values"));
  training.clear_loss_scale();
  training.clear_optimizer();
  EXPECT_EQ(AdviceOnNonfinite(training, ""),
            "a lower training.schedule.learning_rate, warm-up or training.optimizer.clip_norm=1; "
            "or training.precision=BF16, which reaches as far as f32");
}

}  // namespace
}  // namespace weir::train
