#include "compiler/ir/layout_rules.h"

#include "absl/strings/str_cat.h"
#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void AddRule(const std::string& dim, const std::string& axis, proto::Rule::Scope scope,
             proto::Job* job) {
  proto::Rule* rule = job->add_rule();
  rule->set_dim(dim);
  rule->set_axis(axis);
  rule->set_scope(scope);
}

proto::Job JobWithRule(const std::string& dim, const std::string& axis) {
  proto::Job job;
  AddRule(dim, axis, proto::Rule::ALL, &job);
  return job;
}

proto::Job JobWithLayouts(const Pairs& layouts) {
  proto::Job job;
  for (const auto& [tensor, sbp] : layouts) {
    proto::LayoutOverride* entry = job.add_layout();
    entry->set_tensor(tensor);
    entry->set_sbp(sbp);
  }
  return job;
}

LayoutRules Create(const proto::Job& job, const sbp::Mesh& mesh) {
  absl::StatusOr<LayoutRules> rules = LayoutRules::Create(job, mesh, TestDims());
  EXPECT_TRUE(rules.ok()) << rules.status();
  return rules.value_or(LayoutRules());
}

std::string Refusal(const proto::Job& job) {
  const absl::Status status = LayoutRules::Create(job, MeshOf("dp=2,tp=2"), TestDims()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(LayoutRules, ARuleAboutAnUnknownDimensionIsRefusedWithTheNearest) {
  EXPECT_THAT(Refusal(JobWithRule("batsh", "dp")),
              AllOf(HasSubstr("W0481 at rule batsh -> dp"), HasSubstr("Try: dim: \"batch\"")));
}

TEST(LayoutRules, ARuleAboutThePipelineOrAboutNoAxisIsRefused) {
  EXPECT_THAT(Refusal(JobWithRule("batch", "pp")),
              AllOf(HasSubstr("W0482"), HasSubstr("pipeline { cut: ... }")));
  EXPECT_THAT(Refusal(JobWithRule("batch", "")), HasSubstr("W0485 at rule batch -> "));
}

TEST(LayoutRules, ARuleAboutAnAxisThatTheMeshLacksOrThatHasOneRankDoesNothing) {
  const sbp::TensorType type = TypeOf("f32[batch, wide]");
  for (const char* mesh : {"", "tp=2", "dp=1", "dp=1,tp=2"}) {
    const LayoutRules rules = Create(JobWithRule("batch", "dp"), MeshOf(mesh));
    EXPECT_EQ(rules.LayoutOf(type, proto::Rule::ACTIVATIONS), sbp::Broadcast(MeshOf(mesh))) << mesh;
    EXPECT_EQ(rules.WhyOf(type, proto::Rule::ACTIVATIONS), "") << mesh;
  }
}

TEST(LayoutRules, AScopeLimitsARuleToItsTensors) {
  proto::Job job;
  AddRule("wide", "dp", proto::Rule::PARAMETERS, &job);
  AddRule("wide", "tp", proto::Rule::ACTIVATIONS, &job);
  AddRule("deep", "dp", proto::Rule::ALL, &job);
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  const LayoutRules rules = Create(job, mesh);
  const sbp::TensorType wide = TypeOf("f32[wide]"), deep = TypeOf("f32[deep]");
  EXPECT_EQ(ToText(rules.LayoutOf(wide, proto::Rule::PARAMETERS), mesh), "[dp: S(0), tp: B]");
  EXPECT_EQ(ToText(rules.LayoutOf(wide, proto::Rule::ACTIVATIONS), mesh), "[dp: B, tp: S(0)]");
  EXPECT_EQ(ToText(rules.LayoutOf(deep, proto::Rule::PARAMETERS), mesh), "[dp: S(0), tp: B]");
  EXPECT_EQ(ToText(rules.LayoutOf(deep, proto::Rule::ACTIVATIONS), mesh), "[dp: S(0), tp: B]");
}

TEST(LayoutRules, WhyNamesTheRuleOfEachAxis) {
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  const LayoutRules rules = RulesOf(mesh, {{"heads", "tp"}, {"batch", "dp"}});
  EXPECT_EQ(rules.WhyOf(TypeOf("f32[batch, heads]"), proto::Rule::ALL),
            "dp: rule batch -> dp, tp: rule heads -> tp");
  EXPECT_EQ(rules.WhyOf(TypeOf("f32[rows, heads]"), proto::Rule::ALL), "tp: rule heads -> tp");
  EXPECT_EQ(rules.WhyOf(TypeOf("f32[rows]"), proto::Rule::ALL), "");
}

// The first rule of the job that names a dimension of the tensor decides over an axis.
TEST(LayoutRules, TheFirstRuleOfAnAxisThatNamesADimensionOfTheTensorDecides) {
  const std::vector<std::string> names = {"batch", "rows", "wide", "deep"};
  const std::vector<std::string> axes = {"dp", "tp"};
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  int num_split = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    uint64_t n = 0;
    const auto below = [&](size_t limit) {
      return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    proto::Job job;
    for (size_t i = below(6); i > 0; --i)
      AddRule(names[below(4)], axes[below(2)], static_cast<proto::Rule::Scope>(below(3)), &job);
    sbp::TensorType type;
    for (size_t i = below(4); i > 0; --i) type.dims.push_back(TestDims().at(names[below(4)]));
    const proto::Rule::Scope scope =
        below(2) == 0 ? proto::Rule::ACTIVATIONS : proto::Rule::PARAMETERS;
    sbp::Layout expected = sbp::Broadcast(mesh);
    for (int axis = 0; axis < 2; ++axis) {
      for (int r = job.rule_size() - 1; r >= 0; --r) {
        const proto::Rule& rule = job.rule(r);
        if (rule.axis() != axes[axis] ||
            (rule.scope() != proto::Rule::ALL && rule.scope() != scope))
          continue;
        for (int d = static_cast<int>(type.dims.size()) - 1; d >= 0; --d) {
          if (type.dims[d].name == rule.dim()) expected[axis] = sbp::Sbp::S(d);
        }
      }
      num_split += expected[axis].is_split();
    }
    EXPECT_EQ(ToText(Create(job, mesh).LayoutOf(type, scope), mesh), ToText(expected, mesh))
        << "seed " << seed << ": " << ToText(type) << " under " << job.ShortDebugString();
  }
  EXPECT_GT(num_split, 100);
}

TEST(LayoutRules, ATensorHasOneExplicitLayoutInTheTextOfLayouts) {
  EXPECT_THAT(Refusal(JobWithLayouts({{"layer/x", "[dp: B]"}, {"layer/x", "[dp: S(0)]"}})),
              HasSubstr("W0484 at layout of \"layer/x\""));
  EXPECT_THAT(Refusal(JobWithLayouts({{"layer/x", "[dp: Q]"}})),
              HasSubstr("W0203 at layout of \"layer/x\""));
}

TEST(LayoutRules, AnExplicitLayoutIsFoundByFunctionAndTensor) {
  const sbp::Mesh mesh = MeshOf("dp=2");
  const LayoutRules rules = RulesOf(mesh, {}, {{"layer/x", "[dp: S(0)]"}});
  ASSERT_NE(rules.Override("layer", "x"), nullptr);
  EXPECT_EQ(ToText(*rules.Override("layer", "x"), mesh), "[dp: S(0)]");
  EXPECT_EQ(rules.Override("layer", "y"), nullptr);
  EXPECT_EQ(rules.Override("main.1", "x"), nullptr);
}

TEST(LayoutRules, AnExplicitLayoutMustNameATensorOfTheModelAndFitIt) {
  const Module module = SmallClassifier();
  const sbp::Mesh mesh = MeshOf("dp=2");
  const auto flaw = [&](const std::string& tensor, const std::string& sbp) {
    return std::string(RulesOf(mesh, {}, {{tensor, sbp}}).CheckOverrides(module).message());
  };
  EXPECT_EQ(flaw("layer/x", "[dp: S(1)]"), "");
  EXPECT_THAT(flaw("layer/q", "[dp: B]"),
              AllOf(HasSubstr("W0483 at layout of \"layer/q\""), HasSubstr("tensor: \"layer/")));
  EXPECT_THAT(flaw("layr/x", "[dp: B]"), HasSubstr("Try: tensor: \"layer/x\""));
  EXPECT_THAT(flaw("layer/x", "[dp: S(2)]"), HasSubstr("W0211 at layout of \"layer/x\""));
}

}  // namespace
}  // namespace weir::compiler
