#include <cmath>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/train/metric_log.h"
#include "tools/train/progress.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

TEST(MetricLogTest, CollectsByStepAndTheLastReportStands) {
  MetricLog log;
  log.Report("loss", 0, 0, 2.5f);
  log.Report("grad_norm", 0, 0, 1.0f);
  log.Report("loss", 1, 0, 2.0f);
  log.Report("loss", 1, 0, 1.5f);
  std::map<int64_t, StepMetrics> expected = {{0, {{"loss", 2.5}, {"grad_norm", 1.0}}},
                                             {1, {{"loss", 1.5}}}};
  EXPECT_EQ(log.Take(), expected);
  EXPECT_TRUE(log.Take().empty());
}

TEST(MetricLineTest, IsJsonWithNullForWhatIsNotFinite) {
  MetricLine line(7);
  line.Add("loss", 0.1f);
  line.Add("grad_norm", std::nan(""));
  line.Add("odd \"name\"", INFINITY);
  auto json = nlohmann::json::parse(line.Text());
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["loss"].get<float>(), 0.1f);
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(json["odd \"name\""].is_null());
}

live::LiveStep StepNumber(int64_t step) {
  live::LiveStep shown;
  shown.step = step;
  shown.steps = 10;
  shown.loss = 2.5;
  shown.gradient_norm = 0.87;
  shown.learning_rate = 1e-3;
  shown.items_per_second = 52300;
  shown.seconds_left = 72;
  return shown;
}

TEST(ProgressTest, SaysWhatAPersonWantsToKnow) {
  EXPECT_EQ(ProgressForms(StepNumber(3), "tokens")[0],
            "step 3/10  loss 2.5000  grad 0.87  lr 1.00e-03  52.3k tokens/s  1m12s left");
  live::LiveStep unknown = StepNumber(3);
  unknown.seconds_left.reset();
  for (const std::string& form : ProgressForms(unknown, "tokens"))
    EXPECT_THAT(form, ::testing::EndsWith("/s")) << "the time left is not known";
}

TEST(ProgressTest, ANarrowTerminalLosesTheLearningRateBeforeTheSpeed) {
  for (const int columns : {100, 80, 60, 50, 40, 30}) {
    ManualClock clock;
    std::ostringstream out;
    console::Console console(console::Console::Style::kTerminal, &out,
                             [columns] { return columns; });
    Progress progress("tokens", &clock, &console, nullptr);
    progress.Show(StepNumber(3));
    EXPECT_THAT(out.str(), HasSubstr("loss 2.5000")) << columns;
    EXPECT_THAT(out.str(), HasSubstr("52.3k")) << columns;
    EXPECT_THAT(out.str(), HasSubstr("/s")) << columns;
    EXPECT_LT(out.str().size(), static_cast<size_t>(columns)) << columns;
  }
}

TEST(ProgressTest, OnATerminalRedrawsOneLineAndLeavesItStanding) {
  ManualClock clock;
  std::ostringstream out;
  console::Console console(console::Console::Style::kTerminal, &out);
  Progress progress("tokens", &clock, &console, nullptr);
  progress.Show(StepNumber(1));
  clock.AdvanceTo(1'000'000);  // too soon to redraw
  progress.Show(StepNumber(2));
  clock.AdvanceTo(1'000'000'000);
  progress.Show(StepNumber(3));
  progress.Say("a line");
  progress.Show(StepNumber(10));
  progress.Finish();
  progress.Finish();
  std::string text = out.str();
  EXPECT_THAT(text, HasSubstr("step 1/10"));
  EXPECT_THAT(text, Not(HasSubstr("step 2/10")));
  EXPECT_THAT(text, HasSubstr("\r\033[Ka line\n"));
  EXPECT_THAT(text, ::testing::EndsWith("left\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(ProgressTest, ElsewhereWritesFewPlainLinesButTheFirstAndTheLast) {
  ManualClock clock;
  std::ostringstream out;
  console::Console console(console::Console::Style::kPlain, &out);
  Progress progress("tokens", &clock, &console, nullptr);
  for (int64_t step = 1; step <= 10; ++step) {
    clock.AdvanceTo(step * 500'000'000);
    progress.Show(StepNumber(step));
  }
  progress.Finish();
  std::string text = out.str();
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);  // 1, 5, 9, 10
  EXPECT_THAT(text, HasSubstr("step 10/10"));
}

}  // namespace
}  // namespace weir::train
