#include "tools/train/metrics_csv.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

std::string Table(const std::string& lines) {
  std::ostringstream out;
  EXPECT_EQ(WriteMetricsCsv(lines, "m.jsonl", out), absl::OkStatus());
  return out.str();
}

std::string Error(const std::string& lines) {
  std::ostringstream out;
  return std::string(WriteMetricsCsv(lines, "m.jsonl", out).message());
}

TEST(MetricsCsvTest, HasOneHeaderAndAnEmptyCellForWhatALineLacks) {
  EXPECT_EQ(Table("{\"step\":1,\"loss\":2.5,\"lr\":0.001,\"accuracy\":0.5}\n"
                  "{\"step\":2,\"loss\":null,\"grad_norm\":1.25,\"lr\":0.001,\"eval_loss\":2}\n"),
            "step,loss,grad_norm,lr,accuracy,eval_loss\n"
            "1,2.5,,0.001,0.5,\n"
            "2,,1.25,0.001,,2\n");
}

TEST(MetricsCsvTest, ColumnsDoNotDependOnTheOrderOfNames) {
  EXPECT_EQ(Table("{\"zoo\":1,\"step\":1,\"ant\":2}\n"),
            Table("{\"ant\":2,\"zoo\":1,\"step\":1}\n"));
}

TEST(MetricsCsvTest, ANameMayHaveACommaOrAQuote) {
  EXPECT_EQ(Table("{\"step\":1,\"a,b\\\"\":3}\n"), "step,\"a,b\"\"\"\n1,3\n");
}

TEST(MetricsCsvTest, ALastLineWithoutItsEndIsLeftOut) {
  EXPECT_EQ(Table("{\"step\":1}\n{\"step\":2,\"lo"), "step\n1\n");
}

TEST(MetricsCsvTest, WhatIsNoLineOfMetricsIsNamedByItsPlace) {
  EXPECT_THAT(Error("{\"step\":1}\n[1]\n"), HasSubstr("W0536 at m.jsonl:2"));
  EXPECT_THAT(Error("{\"step\":\"one\"}\n"), HasSubstr("no number as `step`"));
  EXPECT_THAT(Error("{\"step\":{\"a\":{}}}\n"), HasSubstr("no number as `step`"));
  EXPECT_THAT(Error("not json\n"), HasSubstr("something else"));
  EXPECT_THAT(Error(""), HasSubstr("no whole line"));
}

}  // namespace
}  // namespace weir::train
