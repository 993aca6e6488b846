#include "tools/job/text_bounds.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/job/job_file.h"

namespace weir::job {
namespace {

using ::testing::HasSubstr;

std::string Repeated(const std::string& piece, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += piece;
  return text;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(TextBoundsTest, CountsMessagesScalarsAndElementsOfLists) {
  EXPECT_EQ(CountText("").values, 0);
  EXPECT_EQ(CountText("graph { dim { } node {} node < > }").values, 4);
  EXPECT_EQ(CountText("steps: 3 seed: 4").values, 2);
  EXPECT_GE(CountText("values: [1, 2, 3]").values, 3);
  EXPECT_GE(CountText("input: ['a', 'b']").values, 2);
}

TEST(TextBoundsTest, NeitherCommentsNorWhatStandsInStringsCounts) {
  EXPECT_EQ(CountText("# { : , \" '\n{}").values, 1);
  EXPECT_EQ(CountText("name: '{:,#\\'{' {}").values, 3);
  EXPECT_EQ(CountText("name: \"never ends\n{}").values, 3);
}

TEST(TextBoundsTest, StringsThatFollowOneAnotherAreOneForTheirLength) {
  EXPECT_EQ(CountText("a: 'four'").longest_string_bytes, 4);
  EXPECT_EQ(CountText("a: 'four' \"five \"\n # and\n 'three' b: ''").longest_string_bytes, 14);
  EXPECT_EQ(CountText("a: '1234' b: '12345'").longest_string_bytes, 5);
  EXPECT_EQ(CountText("a: '\\'\\\\'").longest_string_bytes, 4);
  EXPECT_EQ(CountText("a: 'x\\").longest_string_bytes, 2);
}

TEST(TextBoundsTest, ATextAtItsBoundsIsReadAndOneBeyondIsRefused) {
  EXPECT_TRUE(CheckTextBounds(Repeated("{}", kTextValuesMax), "t").ok());
  EXPECT_THAT(MessageOf(CheckTextBounds(Repeated("{}", kTextValuesMax + 1), "t")),
              HasSubstr("W0811 at t: expected at most 100000 values"));
  EXPECT_TRUE(CheckTextBounds("'" + std::string(kTextStringBytesMax, 'x') + "'", "t").ok());
  EXPECT_THAT(
      MessageOf(CheckTextBounds("\n'" + std::string(kTextStringBytesMax + 1, 'x') + "'", "t")),
      HasSubstr("W0812 at t:2: expected strings"));
}

TEST(TextBoundsTest, JobsAndWhatSetSaysKeepTheBounds) {
  const std::string many = Repeated("node {} ", kTextValuesMax);
  EXPECT_THAT(MessageOf(ParseJob("graph { function { " + many + "} }", "job").status()),
              HasSubstr("W0811 at job:"));
  proto::Job job;
  EXPECT_THAT(MessageOf(SetField("graph.function=" + many, &job)),
              HasSubstr("W0812 at --set graph.function: expected a value"));
  EXPECT_THAT(MessageOf(SetField("name=" + std::string(kTextStringBytesMax + 1, 'x'), &job)),
              HasSubstr("W0812 at --set name:"));
  EXPECT_TRUE(SetField("name=" + std::string(kTextStringBytesMax, 'x'), &job).ok());
}

TEST(TextBoundsTest, AllAssignmentsOfSetTogetherKeepTheBoundsOfTheJob) {
  const std::string job = Repeated("{}", kTextValuesMax / 2);
  const std::string half = "graph.function=" + Repeated("{}", kTextValuesMax / 4 - 1);
  EXPECT_TRUE(CheckSetBounds(job, {}).ok());
  EXPECT_TRUE(CheckSetBounds(job, {half, half}).ok());
  const std::string many = MessageOf(CheckSetBounds(job, {half, half, "name=x"}));
  EXPECT_THAT(many, HasSubstr("W0811 at --set: expected at most 100000 values"));
  EXPECT_THAT(many, HasSubstr("with those of the job; found 100001"));
  const std::string long_one(kSetBytesMax / 2 + 1, 'x');
  EXPECT_THAT(MessageOf(CheckSetBounds("", {long_one, long_one})), HasSubstr("W0812 at --set:"));
}

}  // namespace
}  // namespace weir::job
