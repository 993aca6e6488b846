#include "tools/job/job_file.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/job/job_text.h"

namespace weir::job {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(JobFileTest, AnUnknownFieldIsNamedWithPlaceAndNearestField) {
  auto job = ParseJob("name: \"x\"\ntraining {\n  step: 10\n}\n", "job.textproto");
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(job.status()), HasSubstr("W0003 at job.textproto:3:"));
  EXPECT_THAT(Message(job.status()), HasSubstr("found \"step\". Try: steps."));
}

TEST(JobFileTest, AnUnknownEnumValueIsNamedWithTheNearestOne) {
  auto job = ParseJob("training { precision: BF_16 }", "job.textproto");
  EXPECT_THAT(Message(job.status()), HasSubstr("found \"BF_16\". Try: BF16."));
  job = ParseJob("rule { dim: \"a\" axis: \"b\" scope: PARAMS }", "job.textproto");
  EXPECT_THAT(Message(job.status()), HasSubstr("PARAMETERS"));
}

// The parser takes any number, and each reader of the value would take it for another word.
TEST(JobFileTest, ANumberThatIsNoEnumValueIsRefused) {
  auto job = ParseJob("training { precision: 9 }", "job.textproto");
  EXPECT_THAT(Message(job.status()), HasSubstr("W0004 at job.textproto, training.precision"));
  EXPECT_THAT(Message(job.status()), HasSubstr("found 9. Try: one of F32, BF16, F16."));
  job = ParseJob("training { precision: 1 }", "job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->training().precision(), proto::Training::BF16);
  EXPECT_THAT(Message(SetField("training.optimizer.muon.adjust=7", &*job)),
              HasSubstr("SHAPE, RMS"));
}

TEST(JobFileTest, SyntaxErrorsHaveLineAndColumn) {
  auto job = ParseJob("training {\n  steps: ten\n}\n", "job.textproto");
  EXPECT_THAT(Message(job.status()), HasSubstr("W0002 at job.textproto:2:10"));
  EXPECT_FALSE(ParseJob("training {", "job.textproto").ok());
  EXPECT_FALSE(ParseJob("\x01\xff", "job.textproto").ok());
}

// Returns the message about a text, or about a value of --set if `text` begins with "--set ".
std::string ErrorOf(const std::string& text) {
  if (text.rfind("--set ", 0) != 0) return Message(ParseJob(text, "job.textproto").status());
  proto::Job job;
  return Message(SetField(text.substr(6), &job));
}

TEST(JobFileTest, AWrongValueIsShownAsItShouldBe) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"name: vineyard",
       "W0002 at job.textproto:1:7: expected a string in quotes for `name`; found vineyard. Try: "
       "name: \"vineyard\"."},
      {"graph { function { input { type: i32<a>[b, c] } } }",
       "found i32<a>[b, c]. Try: type: \"i32<a>[b, c]\"."},
      {"graph { function { node { input: [\"x\", weight] } } }",
       "expected a string in quotes for `input`; found weight. Try: \"weight\"."},
      {"graph { function { node { input: [, \"x\"] } } }",
       "expected a string in quotes for `input`; found ,."},
      {"graph { dim { name: \"a\" size: \"12\" } }",
       "expected a whole number without quotes for `size`; found \"12\". Try: size: 12."},
      {"training { steps: 1e3 }",
       "expected a whole number for `steps`; found 1e3. Try: steps: 1000."},
      {"training { steps: ten }", "expected a whole number for `steps`; found ten."},
      {"training { steps: 9223372036854775808 }",
       "expected a whole number from -2^63 to 2^63 - 1 for `steps`; found 9223372036854775808."},
      {"training { schedule { learning_rate: '0.1' } }", "Try: learning_rate: 0.1."},
      {"training { precision: \"bf16\" }",
       "expected one of F32, BF16, F16 without quotes for `precision`; found \"bf16\". Try: "
       "precision: BF16."},
      {"graph { without_loss: yes }",
       "expected true or false for `without_loss`; found yes. Try: without_loss: true."},
      {"graph { function { node { attr { name: \"activation\" value: \"relu\" } } } }",
       "expected { } with fields (i, f, b, s, ints) for `value`; found \"relu\". Try: value { s: "
       "\"relu\" }."},
      {"graph { function { node { attr { value: 12 } } } }", "Try: value { i: 12 }."},
      {"graph { function { node { attr { value: 0.5 } } } }", "Try: value { f: 0.5 }."},
      {"graph { function { node { attr { value: false } } } }", "Try: value { b: false }."},
      {"graph { function { node { attr { value: [1, 2] } } } }",
       "Try: value { ints { values: [1, 2] } }."},
      {"graph { function { parameter { init: zeros } } }",
       "found zeros. Try: init { zeros: true }."},
      {"data { text: \"a.txt\" }", "Try: text { path: \"a.txt\" }."},
      {"training { schedule: 0.5 }", "Try: schedule { learning_rate: 0.5 }."},
      {"name = \"vineyard\"", "expected a colon after `name`; found =. Try: name: \"vineyard\"."},
      {"training { steps 5 }", "expected a colon after `steps`; found 5. Try: steps: 5."},
      {"training.steps = 5", "for `training`; found .steps. Try: training { steps: … }."},
      {"name: \"a\"\nname: \"b\"",
       "expected `name` once; found it twice. Try: leave out one `name`."},
      {"graph { function { parameter { init { zeros: true ones: true } } } }",
       "expected either `zeros` or `ones`; found both. Try: leave out one of them."},
      {"name: \"a\" ]", "expected the name of a field; found ]."},
      {"--set training.optimizer=sgd",
       "for `sgd`; found nothing. Try: 'training.optimizer=sgd {}'."},
      {"--set rule=dim: hidden axis: \"tp\"",
       "expected a string in quotes for `dim`; found hidden. Try: 'rule=dim: \"hidden\" axis: "
       "\"tp\"'."},
  };
  for (const auto& [text, message] : cases)
    EXPECT_THAT(ErrorOf(text), HasSubstr(message)) << "of " << text;
  // Nothing is offered that would be wrong in another way.
  for (const char* text :
       {"training { steps: ten }", "graph { function { node { input: [, 1] } } }",
        "training { steps: 1.5 }", "name: {}", "name: \"a\" ]"})
    EXPECT_THAT(ErrorOf(text), Not(HasSubstr("Try"))) << "of " << text;
}

TEST(JobFileTest, AMissingBraceIsNamedByWhatItWouldEnd) {
  const auto error = [](const std::string& text) {
    return Message(ParseJob(text, "job.textproto").status());
  };
  EXPECT_THAT(error("graph {\n  dim { name: \"a\" size: 8 # }\n  dim { name: \"}\" size: 2 }\n}\n"),
              HasSubstr("expected a field of Dim; found \"dim\", a field of Graph. Try: a } before "
                        "it for `dim {` of line 2."));
  EXPECT_THAT(error("graph {\n  dim { size: 8 }\ntraining { steps: 1 }\n"),
              HasSubstr("found \"training\", a field of Job. Try: a } before it for `graph {` of "
                        "line 1."));
  EXPECT_THAT(error("graph {\n\n  function {\n    node {\n rule { }\n"),
              HasSubstr("for `graph {` of line 1 and for `function {` of line 3 and for `node {`"));
  EXPECT_THAT(error("graph { }\ntraining {\n  steps: 1\n# }\n"),
              HasSubstr("found the end of the text. Try: a } for `training {` of line 2."));
  EXPECT_THAT(error("graph {\n  main: \"m"), Not(HasSubstr("a } for"))) << "a string has no end";
  EXPECT_THAT(error("graph { dim { main: \"m\" } }"), Not(HasSubstr("a } before it")))
      << "every brace has its end";
}

TEST(JobFileTest, DeepNestingIsRefusedAndNotFatal) {
  std::string deep = "graph ";
  for (int i = 0; i < 100000; ++i) deep += "{ graph ";
  EXPECT_FALSE(ParseJob(deep, "deep").ok());
  // Nesting inside a skipped field counts as well.
  std::string unknown;
  for (int i = 0; i < 100000; ++i) unknown += "x { ";
  EXPECT_FALSE(ParseJob(unknown, "deep").ok());
}

TEST(JobFileTest, AJobBeyondTheLimitIsRefusedAndAMissingOneNotFound) {
  EXPECT_THAT(
      Message(ParseJob(std::string(static_cast<size_t>(kJobBytesMax) + 1, ' '), "big").status()),
      HasSubstr("W0001"));
  EXPECT_EQ(ReadJobFile("/no/such/job").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadJobFile(TemporaryPath("")).status().code(), absl::StatusCode::kNotFound);
}

TEST(JobFileTest, AByteOrderMarkBeforeTheTextIsNoPartOfIt) {
  const auto job = ParseJob("\xEF\xBB\xBFname: \"x\"", "job.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "x");
  EXPECT_THAT(Message(ParseJob("name: \"x\"\n\xEF\xBB\xBF", "job.textproto").status()),
              HasSubstr("job.textproto:2:1"));
}

class SetFieldTest : public ::testing::Test {
 protected:
  SetFieldTest() {
    job_ = *ParseJob(R"(
      graph { dim { name: "batch" size: 8 } dim { name: "hidden" size: 64 } }
      rule { dim: "batch" axis: "dp" }
      training { steps: 5 seed: 3 optimizer { sgd { momentum: 0.9 } } })",
                     "t");
  }
  std::string Error(const std::string& assignment) {
    proto::Job before = job_;
    absl::Status status = SetField(assignment, &job_);
    EXPECT_FALSE(status.ok()) << assignment;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(job_.DebugString(), before.DebugString()) << "a refused change changed the job";
    return Message(status);
  }
  proto::Job job_;
};

TEST_F(SetFieldTest, SetsNumbersStringsEnumsAndElements) {
  ASSERT_TRUE(SetField("training.steps=10", &job_).ok());
  ASSERT_TRUE(SetField("training.seed=0", &job_).ok());
  ASSERT_TRUE(SetField("training.precision=bf16", &job_).ok());
  ASSERT_TRUE(SetField("training.schedule.learning_rate=3e-4", &job_).ok());
  ASSERT_TRUE(SetField("graph.dim[hidden].size=128", &job_).ok());
  ASSERT_TRUE(SetField("graph.dim[0].unit=2", &job_).ok());
  ASSERT_TRUE(SetField("rule[0].axis=tp", &job_).ok());
  ASSERT_TRUE(SetField("data.text.path=a=b.txt", &job_).ok());
  ASSERT_TRUE(SetField("pipeline.cut=layers.2", &job_).ok());
  ASSERT_TRUE(SetField("pipeline.cut=layers.4", &job_).ok());
  ASSERT_TRUE(SetField("pipeline.cut[0]=layers.1", &job_).ok());
  ASSERT_TRUE(SetField("training.optimizer.adamw=beta1: 0.5", &job_).ok());
  EXPECT_EQ(job_.training().steps(), 10);
  EXPECT_EQ(job_.training().seed(), 0u);
  EXPECT_EQ(job_.training().precision(), proto::Training::BF16);
  EXPECT_EQ(job_.training().schedule().learning_rate(), 3e-4);
  EXPECT_EQ(job_.graph().dim(1).size(), 128);
  EXPECT_EQ(job_.graph().dim(0).unit(), 2);
  EXPECT_EQ(job_.rule(0).axis(), "tp");
  EXPECT_EQ(job_.data().text().path(), "a=b.txt");
  EXPECT_THAT(job_.pipeline().cut(), ::testing::ElementsAre("layers.1", "layers.4"));
  EXPECT_EQ(job_.training().optimizer().adamw().beta1(), 0.5);
}

TEST_F(SetFieldTest, AMessageIsWrittenWithOrWithoutBraces) {
  ASSERT_TRUE(SetField("rule={ dim: \"hidden\" axis: \"tp\" }", &job_).ok());
  ASSERT_TRUE(SetField("rule=dim: \"hidden\" axis: \"sp\"", &job_).ok());
  ASSERT_EQ(job_.rule_size(), 3);
  EXPECT_EQ(job_.rule(1).axis(), "tp");
  EXPECT_EQ(job_.rule(2).axis(), "sp");
  const std::string error = Error("rule=dim \"hidden\"");
  EXPECT_THAT(error, HasSubstr("W0002 at --set rule=dim \"hidden\":1:"));
  EXPECT_THAT(error, HasSubstr("expected a colon after `dim`; found \"hidden\". Try: 'rule=dim: "
                               "\"hidden\"'."));
  EXPECT_THAT(Error("rule=0.5"),
              HasSubstr("expected fields of rule (dim, axis, scope, stage) in protobuf text "
                        "form, as in 'rule=dim: …'"));
}

TEST_F(SetFieldTest, ASelectorOfAnEmptyListHasNoRemedy) {
  EXPECT_THAT(Error("layout[x].sbp=B"), Not(HasSubstr("Try")));
}

TEST_F(SetFieldTest, ErrorsNameTheNearestFieldElementOrValue) {
  EXPECT_THAT(Error("trainin.steps=10"), HasSubstr("Try: training."));
  EXPECT_THAT(Error("training.stepz=10"), HasSubstr("Try: steps."));
  EXPECT_THAT(Error("training.steps=ten"), HasSubstr("int64"));
  EXPECT_THAT(Error("training.precision=bf15"), HasSubstr("BF16"));
  EXPECT_THAT(Error("graph.dim[hiden].size=1"), HasSubstr("Try: hidden."));
  EXPECT_THAT(Error("graph.dim[7].size=1"), HasSubstr("which has 2"));
  EXPECT_THAT(Error("graph.dim.size=1"), HasSubstr("dim[0]"));
  EXPECT_THAT(Error("training.steps.x=1"), HasSubstr("plain value"));
  EXPECT_THAT(Error("training[0].steps=1"), HasSubstr("not a list"));
  EXPECT_THAT(Error("training.optimizer={adam {}}"), HasSubstr("W000"));
  Error("training");
  Error("=5");
  Error("graph.dim[0.size=1");
  Error("training..steps=1");
}

TEST_F(SetFieldTest, ALongValueIsCutOffInErrorsAndThePlaceInItIsNot) {
  const std::string error = Error("rule=" + std::string(5000, ' ') + "dim \"hidden\"");
  EXPECT_THAT(error, HasSubstr("W0002 at --set rule=  "));
  EXPECT_THAT(error, HasSubstr(" …:1:500"));
  EXPECT_EQ(SetFlag("name=short"), "--set name=short");
  EXPECT_EQ(SetFlag("name=" + std::string(194, 'x') + "öx"),
            "--set name=" + std::string(194, 'x') + "…");
}

TEST(SetMeshTest, ReplacesTheMeshAndRefusesNonsense) {
  proto::Job job = *ParseJob("mesh { axis { name: \"dp\" size: 8 } }", "t");
  ASSERT_TRUE(SetMesh("dp=2,tp=3", &job).ok());
  ASSERT_EQ(job.mesh().axis_size(), 2);
  EXPECT_EQ(job.mesh().axis(1).name(), "tp");
  EXPECT_EQ(job.mesh().axis(1).size(), 3);
  EXPECT_EQ(SetMesh("dp=x", &job).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(job.mesh().axis_size(), 2);
  ASSERT_TRUE(SetMesh("", &job).ok());
  EXPECT_EQ(job.mesh().axis_size(), 0);
}

TEST(SetMeshTest, KeepsAnOrderOfRanksThatNamesTheNewAxes) {
  proto::Job job = *ParseJob("mesh { rank_order: \"tp\" rank_order: \"dp\" }", "t");
  ASSERT_TRUE(SetMesh("dp=2,tp=3", &job).ok());
  EXPECT_EQ(job.mesh().rank_order_size(), 2);
  ASSERT_TRUE(SetMesh("dp=2,pp=3", &job).ok());
  EXPECT_EQ(job.mesh().rank_order_size(), 0);
}

TEST(JobTextTest, RoundTripsAndIsStable) {
  proto::Job job = *ParseJob(R"(name: "x" graph { dim { name: "batch" size: 8 } function { name: "f"
    node { name: "n" op: "relu" input: "x" attr { name: "a" value { ints { values: 1 values: 2 } } } } } main: "f" }
    pipeline { cut: "a" cut: "b" } training { schedule { learning_rate: 0.1 } })",
                             "t");
  std::string text = JobText(job, "a title\nof two lines");
  auto back = ParseJob(text, "t");
  ASSERT_TRUE(back.ok()) << back.status() << text;
  EXPECT_EQ(back->DebugString(), job.DebugString());
  EXPECT_EQ(JobText(*back, "a title\nof two lines"), text);
}

TEST(JobTextTest, TheCommentAboveMainSaysTheOutputThatIsMinimised) {
  const std::string graph = R"(function { name: "f" output: "y" } main: "f")";
  const auto text_of = [&graph](const std::string& more) {
    return JobText(*ParseJob(absl::StrCat("graph { ", graph, more, " }"), "t"), "a title");
  };
  EXPECT_THAT(text_of(""), HasSubstr("the model; its output `loss` is minimised.\n"));
  EXPECT_THAT(text_of(R"( loss: "nats")"),
              HasSubstr("the model; its output `nats` is minimised.\n"));
  EXPECT_THAT(text_of(" without_loss: true"),
              HasSubstr("the model; its outputs are the results, and no loss is minimised.\n"));
}

}  // namespace
}  // namespace weir::job
