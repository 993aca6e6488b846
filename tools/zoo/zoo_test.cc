#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/job/job_file.h"
#include "tools/job/job_text.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"
#include "tools/zoo/mlp.h"

namespace weir::zoo {
namespace {

using ::testing::HasSubstr;

void ExpectRoundTrip(const proto::Job& job) {
  std::string text = job::JobText(job, "title");
  auto back = job::ParseJob(text, "zoo");
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
  EXPECT_EQ(back->DebugString(), job.DebugString());
}

// Checks that every dimension name in a rule or a type is in the dimension table.
void ExpectNamesAreDeclared(const proto::Job& job) {
  std::set<std::string> dims;
  for (const proto::Dim& dim : job.graph().dim()) {
    EXPECT_TRUE(dims.insert(dim.name()).second) << dim.name();
    EXPECT_GE(dim.size(), 1);
    EXPECT_EQ(dim.size() % std::max<int64_t>(dim.unit(), 1), 0) << dim.name();
  }
  for (const proto::Rule& rule : job.rule()) EXPECT_TRUE(dims.count(rule.dim()) > 0) << rule.dim();
  for (const proto::Function& function : job.graph().function()) {
    std::set<std::string> tensors;
    auto declare = [&](const std::string& name) {
      EXPECT_TRUE(tensors.insert(name).second) << name;
    };
    for (const auto& input : function.input()) declare(input.name());
    for (const auto& parameter : function.parameter()) declare(parameter.name());
    for (const auto& node : function.node()) {
      for (const auto& input : node.input())
        EXPECT_TRUE(tensors.count(input) > 0) << node.name() << " reads " << input;
      if (node.output().empty()) declare(node.name());
      for (const auto& output : node.output()) declare(output);
    }
    for (const auto& output : function.output()) EXPECT_TRUE(tensors.count(output) > 0) << output;
  }
}

TEST(ZooTest, GptRoundTripsWithEveryOption) {
  TransformerOptions options;
  options.dropout = 0.1;
  options.training.data = "a \"quoted\" path.txt";
  options.training.mesh = "dp=2,tp=2";
  for (auto mode :
       {SequenceParallel::kNone, SequenceParallel::kMegatron, SequenceParallel::kUlysses}) {
    options.sequence_parallel = mode;
    auto job = GptJob(options);
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectRoundTrip(*job);
    ExpectNamesAreDeclared(*job);
  }
}

TEST(ZooTest, LlamaRoundTripsPlainAndGrouped) {
  for (int64_t kv_heads : {0, 1, 2}) {
    TransformerOptions options;
    options.kv_heads = kv_heads;
    options.sequence_parallel = SequenceParallel::kUlysses;
    auto job = LlamaJob(options);
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectRoundTrip(*job);
    ExpectNamesAreDeclared(*job);
  }
}

TEST(ZooTest, MlpFindsItsFilesInAFolderPlainOrCompressed) {
  MlpOptions options;
  auto synthetic = MlpJob(options);
  ASSERT_TRUE(synthetic.ok());
  ExpectRoundTrip(*synthetic);
  ExpectNamesAreDeclared(*synthetic);
  const TemporaryFolder folder;
  options.training.data = folder.path();
  EXPECT_EQ(MlpJob(options).status().code(), absl::StatusCode::kNotFound);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz",
                           "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"}) {
    folder.Write(name, "x");
  }
  auto job = MlpJob(options);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->data().idx().labels(), HasSubstr("train-labels-idx1-ubyte.gz"));
}

TEST(ZooTest, NonsenseIsRefusedWithTheFlag) {
  TransformerOptions options;
  options.hidden = 130;
  EXPECT_THAT(std::string(GptJob(options).status().message()), HasSubstr("--hidden 132"));
  options = {};
  options.layers = 0;
  EXPECT_THAT(std::string(GptJob(options).status().message()), HasSubstr("--layers"));
  options = {};
  options.kv_heads = 3;
  EXPECT_THAT(std::string(LlamaJob(options).status().message()), HasSubstr("--kv-heads"));
  options = {};
  options.training.micro_batches = 5;
  EXPECT_THAT(std::string(GptJob(options).status().message()), HasSubstr("--micro-batches"));
  options = {};
  options.training.precision = "f8";
  EXPECT_THAT(std::string(GptJob(options).status().message()), HasSubstr("--precision"));
}

// To accept a change, run WEIR_UPDATE_GOLDEN=$PWD bazel-bin/tools/zoo/zoo_test
TEST(ZooTest, TheTextOfASmallGptIsAsReviewed) {
  TransformerOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.heads = 2;
  options.sequence = 8;
  options.training.batch = 4;
  options.training.steps = 40;
  options.training.mesh = "dp=2";
  auto job = GptJob(options);
  ASSERT_TRUE(job.ok());
  std::string text = job::JobText(*job, "A small GPT.");
  std::string golden = "tools/zoo/testdata/gpt_small.textproto";
  if (const char* root = getenv("WEIR_UPDATE_GOLDEN"))
    std::ofstream(absl::StrCat(root, "/", golden)) << text;
  std::ifstream in(golden);
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace
}  // namespace weir::zoo
