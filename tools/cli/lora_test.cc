// Tests `weir lora` and what other verbs say of a job with adapters. What adapters compute is
// tested in tests/training/adapters_test.cc and tests/oracle/adapters_test.py.
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/cli/cli_testing.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LoraTest : public ::testing::Test {
 protected:
  // Trains a small language model, gives it adapters, and trains these.
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "A weight stays, and what is beside it learns. ";
    folder_.Write("book.txt", text);
    std::ostringstream job, ignored;
    ASSERT_EQ(RunCli({"zoo", "gpt", "--layers", "2", "--hidden", "16", "--heads", "2", "--sequence",
                      "8", "--batch", "4", "--steps", "2", "--data", Path("book.txt")},
                     job, ignored),
              0);
    folder_.Write("gpt.textproto", job.str());
    Expect0({"train", Path("gpt.textproto"), "--save", Path("gpt.safetensors")});
    Expect0({"lora", "add", Path("gpt.textproto"), "--rank", "2", "-o", Path("tuned.textproto")});
    Expect0({"train", Path("tuned.textproto"), "--init", Path("gpt.safetensors"), "--save",
             Path("tuned.safetensors")});
  }

  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  static Outcome Expect0(const std::vector<std::string>& args) {
    const Outcome run = Weir(args);
    EXPECT_EQ(run.code, 0) << args[0] << " " << args[1] << ": " << run.err;
    return run;
  }

  const TemporaryFolder folder_;
};

TEST_F(LoraTest, TheEditTellsWhatTrainsAndSoDoCheckAndPlan) {
  const Outcome added = Expect0(
      {"lora", "add", Path("gpt.textproto"), "--rank", "2", "--on", "*.wq", "--alpha", "4"});
  EXPECT_THAT(added.out, AllOf(HasSubstr("wq.lora_a"), Not(HasSubstr("wk.lora_a"))));
  EXPECT_THAT(added.err, HasSubstr("adapters of rank 2 beside 2 weights: 128 of "));
  EXPECT_THAT(Expect0({"check", Path("tuned.textproto")}).out,
              HasSubstr("1,696 of 16,608 parameters train (10 %), the others are frozen"));
  EXPECT_THAT(Unwrapped(Expect0({"plan", Path("tuned.textproto"), "--mesh", "dp=2,tp=2"}).out),
              HasSubstr("1,696 of 16,608 parameters train (10 %), the others are frozen"));
  EXPECT_THAT(Expect0({"check", Path("gpt.textproto")}).out, Not(HasSubstr("frozen")));
}

TEST_F(LoraTest, AJobThatAsksForRulesGetsAdaptersToo) {
  const Outcome added =
      Expect0({"lora", "add", Path("gpt.textproto"), "--rank", "2", "--set", "rules=auto"});
  EXPECT_THAT(added.out, AllOf(HasSubstr("rules: AUTO"), HasSubstr("wq.lora_a")));
  EXPECT_THAT(Expect0({"weights", "check", Path("gpt.textproto"), Path("gpt.safetensors"), "--set",
                       "rules=auto"})
                  .out,
              HasSubstr("fits gpt"));
}

TEST_F(LoraTest, TheNewJobGetsTheMapOfTheOldOne) {
  folder_.Write("gpt.weights.textproto",
                "# of mine\nrule { weight: \"{*}\" from { tensor: \"my.{*}\" } }\n");
  const Outcome added =
      Expect0({"lora", "add", Path("gpt.textproto"), "--rank", "2", "-o", Path("other.textproto")});
  EXPECT_THAT(added.out, HasSubstr("other.weights.textproto, the map of weights of "));
  // Public names come from the job without adapters, and the job with adapters reads them.
  Expect0({"export", Path("gpt.textproto"), "--weights", Path("gpt.safetensors"), "--safetensors",
           Path("public.safetensors")});
  const Outcome check =
      Expect0({"check", Path("other.textproto"), "--init", Path("public.safetensors")});
  EXPECT_THAT(check.err,
              AllOf(HasSubstr("other.weights.textproto"),
                    HasSubstr("has no adapters, so they begin with their first values")));
}

TEST_F(LoraTest, AnImportedModelGetsAdaptersAtOnce) {
  Expect0({"export", Path("gpt.textproto"), "--weights", Path("gpt.safetensors"), "--onnx",
           Path("gpt.onnx")});
  Expect0({"import", Path("gpt.onnx"), "-o", Path("imported.textproto"), "--dim", "batch=4",
           "--loss", "cross_entropy", "--lora", "2"});
  const Outcome check =
      Expect0({"check", Path("imported.textproto"), "--init", Path("imported.safetensors")});
  EXPECT_THAT(check.out, HasSubstr("1,696 of 16,608 parameters train"));
  EXPECT_THAT(check.err, HasSubstr("has no adapters"));
  EXPECT_THAT(Weir({"import", Path("gpt.onnx"), "-o", Path("none.textproto"), "--dim", "batch=4",
                    "--loss", "cross_entropy", "--lora", "200"})
                  .err,
              HasSubstr("W0851"));
}

TEST_F(LoraTest, FilesGoThereAndBack) {
  const std::string tuned = Path("tuned.textproto"), small = Path("small.safetensors");
  EXPECT_THAT(
      Expect0({"lora", "extract", tuned, "--weights", Path("tuned.safetensors"), "-o", small}).out,
      HasSubstr("26 weights that gpt trains"));
  Expect0({"lora", "join", tuned, "--weights", Path("gpt.safetensors"), "--adapters", small, "-o",
           Path("joined.safetensors")});
  Expect0({"lora", "merge", tuned, "--weights", Path("joined.safetensors"), "-o",
           Path("merged.safetensors")});
  const std::string loss = Expect0({"eval", tuned, "--init", Path("tuned.safetensors")}).out;
  EXPECT_EQ(Expect0({"eval", tuned, "--init", Path("joined.safetensors")}).out, loss);
  EXPECT_EQ(Expect0({"eval", Path("gpt.textproto"), "--init", Path("merged.safetensors")}).out,
            loss);
  const Outcome without = Expect0({"eval", tuned, "--init", Path("gpt.safetensors")});
  EXPECT_NE(without.out, loss);
  EXPECT_THAT(without.err, HasSubstr("has no adapters"));
}

TEST_F(LoraTest, WhatWouldBeWrongIsRefused) {
  const std::string tuned = Path("tuned.textproto"), weights = Path("tuned.safetensors");
  const auto error = [](const std::vector<std::string>& args) {
    const Outcome run = Weir(args);
    EXPECT_EQ(run.code, 65) << run.out;
    return run.err;
  };
  EXPECT_THAT(error({"lora", "add", tuned, "-o", Path("twice.textproto")}), HasSubstr("W0852"));
  EXPECT_THAT(
      error({"lora", "add", Path("gpt.textproto"), "--rank", "2", "-o", Path("gpt.textproto")}),
      HasSubstr("W0926"));
  EXPECT_THAT(error({"lora", "merge", tuned, "--weights", weights, "-o", weights}),
              HasSubstr("W0926"));
  EXPECT_THAT(error({"lora", "merge", tuned, "--weights", weights, "-o", Path("a.textproto")}),
              HasSubstr("W0840"));
  EXPECT_THAT(error({"lora", "merge", tuned, "--weights", Path("gpt.safetensors"), "-o",
                     Path("merged.safetensors")}),
              AllOf(HasSubstr("W0853"), HasSubstr("--adapters")));
  EXPECT_THAT(error({"lora", "extract", Path("gpt.textproto"), "--weights", Path("gpt.safetensors"),
                     "-o", Path("small.safetensors")}),
              HasSubstr("W0852"));
  EXPECT_THAT(
      error({"export", tuned, "--weights", weights, "--safetensors", Path("p.safetensors")}),
      AllOf(HasSubstr("W0853"), HasSubstr("weir lora merge")));
  EXPECT_THAT(error({"check", Path("gpt.textproto"), "--init", weights}),
              AllOf(HasSubstr("W0071"), HasSubstr("weir lora merge")));
  EXPECT_EQ(Weir({"lora"}).code, 2);
  for (const char* verb : {"add", "extract", "join", "merge"}) {
    EXPECT_THAT(Unwrapped(Expect0({"lora", verb, "--help"}).out),
                HasSubstr(std::string("Examples: weir lora ") + verb));
  }
}

}  // namespace
}  // namespace weir::cli
