#include "compiler/job/precision_rules.h"

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A classifier of two calls of a layer, with `training` added to its training.
proto::Job JobOf(const std::string& training) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(absl::StrCat(R"(
    graph {
      dim { name: "rows" size: 6 } dim { name: "wide" size: 8 } dim { name: "classes" size: 4 }
      main: "main"
      function {
        name: "layer"
        input { name: "x" type: "f32[rows, wide]" }
        parameter { name: "g" type: "f32[wide]" init { ones: true } }
        parameter { name: "w" type: "f32[wide, wide]" init { normal { std: 0.1 } } }
        node { name: "n" op: "rms_norm" input: ["x", "g"] }
        node { name: "h" op: "matmul" input: ["n", "w"] }
        node { name: "y" op: "add" input: ["x", "h"] }
        output: "y"
      }
      function {
        name: "main"
        input { name: "x" type: "f32[rows, wide]" }
        input { name: "labels" type: "i32[rows]" }
        parameter { name: "head" type: "f32[wide, classes]" init { normal { std: 0.1 } } }
        node { name: "layers" op: "call" function: "layer" input: "x" output: "z" repeat: 2 }
        node { name: "logits" op: "matmul" input: ["z", "head"] }
        node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
        node { name: "loss" op: "reduce_mean" input: "losses" }
        output: "loss"
      }
    }
    data { synthetic {} }
    training { steps: 1 optimizer { adamw {} } schedule { learning_rate: 0.1 } )",
                                                                         training, "}"),
                                                            &job));
  return job;
}

std::unique_ptr<LogicalPlan> PlanOf(const std::string& training) {
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(JobOf(training), {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

std::string TextOf(const std::string& training) { return PrecisionText(*PlanOf(training)); }

std::string Refusal(const std::string& training) {
  return std::string(CompileJob(JobOf(training), {}).status().message());
}

TEST(PrecisionRules, NamesAreThoseOfFunctionsCallsAndNodes) {
  const auto f32_in = [](int nodes, const std::string& pattern) {
    return absl::StrCat("bf16; f32 in ", nodes, " of 9 operations: precision_of[0] (", pattern,
                        ") ", nodes);
  };
  const std::pair<const char*, int> cases[] = {
      {"layer", 6},    {"layers.1", 3},    {"layer/n", 2}, {"layers.1/n", 1}, {"main", 3},
      {"main/lo*", 3}, {"main/logits", 1}, {"*/?", 6},     {"*/lo?its", 1}};
  for (const auto& [pattern, nodes] : cases) {
    EXPECT_EQ(TextOf(absl::StrCat("precision: BF16 precision_of { pattern: '", pattern, "' }")),
              f32_in(nodes, pattern));
  }
}

TEST(PrecisionRules, TheFirstRuleThatANodeFitsCounts) {
  EXPECT_EQ(TextOf(R"(precision: BF16 precision_of { pattern: 'layers.0/n' precision: BF16 }
                      precision_of { op: '*norm*' op: 'add' }
                      precision_of { pattern: 'layers.0' })"),
            "bf16; f32 in 4 of 9 operations: precision_of[1] (op *norm*, op add) 3, "
            "precision_of[2] (layers.0) 1");
  EXPECT_EQ(TextOf("precision_of { pattern: 'layer' op: 'matmul' precision: BF16 }"),
            "f32; bf16 in 2 of 9 operations: precision_of[0] (layer, op matmul) 2");
  EXPECT_EQ(TextOf("precision_of { op: '*' }"), "f32 in all operations");
  EXPECT_EQ(TextOf("precision: BF16"), "");
}

TEST(PrecisionRules, CallsThatFitOtherRulesHaveAFunctionOfTheirOwn) {
  const auto forward = [](const LogicalPlan& plan, int call) {
    return plan.module.model.functions[plan.module.model.calls[call].model_function].forward;
  };
  const auto apart = PlanOf("precision: BF16 precision_of { pattern: 'layers.1' }");
  ASSERT_NE(forward(*apart, 0), forward(*apart, 1));
  const Function &first = apart->module.functions[forward(*apart, 0)],
                 &second = apart->module.functions[forward(*apart, 1)];
  EXPECT_EQ(first.name, second.name) << "layouts of tensors are given by the function's name";
  EXPECT_EQ(first.nodes[0].rng_key, second.nodes[0].rng_key);
  const auto alike = PlanOf("precision: BF16 precision_of { pattern: 'layers.*/n' }");
  EXPECT_EQ(forward(*alike, 0), forward(*alike, 1));
}

TEST(PrecisionRules, ARuleWithoutUseIsSpokenOf) {
  const auto plan = PlanOf(R"(precision: BF16 precision_of { op: '*norm*' }
                              precision_of { pattern: 'layer/n' }
                              precision_of { pattern: 'layer/norm' }
                              precision_of { op: 'matmul' })");
  EXPECT_THAT(PrecisionRulesWithoutUse(*plan),
              ElementsAre(AllOf(HasSubstr("W0860 at training.precision_of[1] (layer/n)"),
                                HasSubstr("2 that fit it, each of which fits an earlier rule")),
                          AllOf(HasSubstr("training.precision_of[2] (layer/norm)"),
                                HasSubstr("no operation of the model that fits it"))));
  EXPECT_THAT(PrecisionRulesWithoutUse(*PlanOf("")), IsEmpty());
}

TEST(PrecisionRules, RulesThatCannotBeMeantAreRefused) {
  EXPECT_THAT(Refusal("precision: BF16 precision_of { precision: F32 }"),
              AllOf(HasSubstr("W0861 at training.precision_of[0]"), HasSubstr("neither")));
  EXPECT_THAT(Refusal("precision: BF16 precision_of { op: '*norm*' } precision_of { op: '' }"),
              HasSubstr("W0861 at training.precision_of[1].op"));
  EXPECT_THAT(Refusal(absl::StrCat("precision_of { pattern: '", std::string(1001, 'x'), "' }")),
              HasSubstr("W0861 at training.precision_of[0].pattern"));
  EXPECT_THAT(Refusal("precision: BF16 precision_of { op: 'matmul' precision: F16 }"),
              AllOf(HasSubstr("W0862 at training.precision_of[0].precision"),
                    HasSubstr("F32 or BF16"), HasSubstr("found F16")));
}

TEST(PrecisionRules, EvaluationAndGenerationHaveTheRules) {
  const proto::Job job = JobOf("precision: BF16 precision_of { pattern: 'main/logits' }");
  for (const PlanMode mode : {PlanMode::kEvaluate, PlanMode::kGenerate}) {
    CompileOptions options;
    options.mode = mode;
    const auto plan = CompileJob(job, options);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(PrecisionText(**plan), HasSubstr("f32 in 1 of"));
    for (const ModelValue& value : (*plan)->module.model.values) {
      if (value.name == "logits") {
        EXPECT_EQ(value.type.dtype, DType::kF32) << "what is fetched is not rounded";
      }
    }
  }
}

}  // namespace
}  // namespace weir::compiler
