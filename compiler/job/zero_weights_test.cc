#include "compiler/job/zero_weights.h"

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Returns the sentence about a perceptron of three layers whose matrices have these `init`s.
std::string Sentence(const std::string& first, const std::string& second,
                     const std::string& third) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(R"(
    graph {
      dim { name: "jars" size: 6 } dim { name: "herbs" size: 8 }
      main: "main"
      function {
        name: "main"
        input { name: "x" type: "f32[jars, herbs]" }
        parameter { name: "basil" type: "f32[herbs, herbs]" )",
                   first, R"( } parameter { name: "bias" type: "f32[herbs]" }
        parameter { name: "mint" type: "f32[herbs, herbs]" )",
                   second, R"( } parameter { name: "sage" type: "f32[herbs, herbs]" )", third, R"( }
        node { name: "a" op: "matmul" input: ["x", "basil", "bias"] }
        node { name: "b" op: "matmul" input: ["a", "mint"] }
        node { name: "c" op: "matmul" input: ["b", "sage"] }
        node { name: "loss" op: "reduce_mean" input: "c" }
        output: "loss"
      }
    }
    training { steps: 1 optimizer { adamw {} } schedule { learning_rate: 0.1 } }
    data { synthetic {} })"),
      &job));
  const absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? WeightsWithoutInit((*plan)->module) : "";
}

TEST(ZeroWeights, MatricesWithoutAnInitAreNamed) {
  const std::string normal = "init { normal { std: 0.1 } }";
  EXPECT_THAT(Sentence("", normal, ""),
              AllOf(StartsWith("basil, sage have no `init`"), HasSubstr("normal { std: 0.1 }")));
  EXPECT_THAT(Sentence("", "", ""), StartsWith("basil, mint, sage have no `init`"));
}

TEST(ZeroWeights, OneMatrixOrZerosThatAreWrittenAreMeant) {
  const std::string normal = "init { normal { std: 0.1 } }", zeros = "init { zeros: true }";
  EXPECT_EQ(Sentence(normal, normal, ""), "");
  EXPECT_EQ(Sentence(zeros, normal, zeros), "");
}

}  // namespace
}  // namespace weir::compiler
