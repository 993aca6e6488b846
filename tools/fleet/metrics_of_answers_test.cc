#include "tools/fleet/metrics_of_answers.h"

#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

void Add(int64_t step, const std::string& name, double value, proto::WorkerAnswer* answer) {
  proto::MetricFact* const fact = answer->add_metric();
  fact->set_step(step);
  fact->set_name(name);
  fact->set_value(value);
}

TEST(MetricsOfAnswersTest, AStepHasTheMetricsOfAllWorkers) {
  IdVector<WorkerId, proto::WorkerAnswer> answers(2);
  Add(7, "grad_norm", 0.5, &answers[WorkerId(0)]);
  Add(7, "loss", 2.5, &answers[WorkerId(1)]);
  const auto steps = MetricsOf(answers);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps.at(7).at("grad_norm"), 0.5);
  EXPECT_EQ(steps.at(7).at("loss"), 2.5);
}

TEST(MetricsOfAnswersTest, AStepWhoseReportIsLostOrLacksANameIsFound) {
  const std::set<std::string> names = {"loss"};
  std::map<int64_t, train::StepMetrics> reported;
  EXPECT_TRUE(HasMetrics(reported, 5, 5, names)) << "no step is asked for";
  EXPECT_FALSE(HasMetrics(reported, 5, 6, {})) << "nobody has reported the step";
  reported[5]["loss"] = 2.5;
  EXPECT_TRUE(HasMetrics(reported, 5, 6, names));
  reported[6]["grad_norm"] = 0.5;
  EXPECT_FALSE(HasMetrics(reported, 5, 7, names)) << "the worker with the loss was lost";
}

}  // namespace
}  // namespace weir::fleet
