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

TEST(LayoutRules, AScopeLimitsARuleToItsTensors) {
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  LayoutRules rules(mesh);
  rules.AddRule("wide", 0, RuleScope::kParameters);
  rules.AddRule("wide", 1, RuleScope::kActivations);
  rules.AddRule("deep", 0, RuleScope::kAll);
  const sbp::TensorType wide = TypeOf("f32[wide]"), deep = TypeOf("f32[deep]");
  EXPECT_EQ(ToText(rules.LayoutOf(wide, RuleScope::kParameters), mesh), "[dp: S(0), tp: B]");
  EXPECT_EQ(ToText(rules.LayoutOf(wide, RuleScope::kActivations), mesh), "[dp: B, tp: S(0)]");
  EXPECT_EQ(ToText(rules.LayoutOf(deep, RuleScope::kParameters), mesh), "[dp: S(0), tp: B]");
  EXPECT_EQ(ToText(rules.LayoutOf(deep, RuleScope::kActivations), mesh), "[dp: S(0), tp: B]");
}

TEST(LayoutRules, WhyNamesTheRuleOfEachAxis) {
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  const LayoutRules rules = RulesOf(mesh, {{"heads", "tp"}, {"batch", "dp"}});
  const auto why = [&](const std::string& type) {
    return ToText(rules.WhyOf(TypeOf(type), RuleScope::kAll), mesh);
  };
  EXPECT_EQ(why("f32[batch, heads]"), "dp: rule batch -> dp, tp: rule heads -> tp");
  EXPECT_EQ(why("f32[rows, heads]"), "tp: rule heads -> tp");
  EXPECT_EQ(why("f32[rows]"), "");
}

TEST(LayoutRules, WhyOfABoxingNamesTheFirstRuleForActivationsOfEachAxisThatChanges) {
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  LayoutRules rules(mesh);
  rules.AddRule("wide", 0, RuleScope::kParameters);
  rules.AddRule("batch", 0, RuleScope::kAll);
  rules.AddRule("rows", 0, RuleScope::kAll);
  const sbp::Layout partial = {sbp::Sbp::P(), sbp::Sbp::B()}, whole = sbp::Broadcast(mesh);
  EXPECT_EQ(rules.WhyBoxed(partial, whole),
            (LayoutReasons{{LayoutReason::Kind::kRule, "batch -> dp", 0}}));
  EXPECT_EQ(rules.WhyBoxed({sbp::Sbp::B(), sbp::Sbp::S(0)}, whole), LayoutReasons())
      << "no rule is about tp";
}

// The first rule of the job that names a dimension of the tensor decides over an axis.
TEST(LayoutRules, TheFirstRuleOfAnAxisThatNamesADimensionOfTheTensorDecides) {
  const std::vector<std::string> names = {"batch", "rows", "wide", "deep"};
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  int num_split = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    uint64_t n = 0;
    const auto below = [&](size_t limit) {
      return static_cast<size_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    struct Rule {
      std::string dim;
      int axis;
      RuleScope scope;
    };
    std::vector<Rule> given;
    LayoutRules rules(mesh);
    for (size_t i = below(6); i > 0; --i) {
      const std::string& dim = names[below(4)];
      const int axis = static_cast<int>(below(2));
      given.push_back({dim, axis, static_cast<RuleScope>(below(3))});
      rules.AddRule(dim, axis, given.back().scope);
    }
    sbp::TensorType type;
    for (size_t i = below(4); i > 0; --i) type.dims.push_back(TestDims().at(names[below(4)]));
    const RuleScope scope = below(2) == 0 ? RuleScope::kActivations : RuleScope::kParameters;
    sbp::Layout expected = sbp::Broadcast(mesh);
    for (int axis = 0; axis < 2; ++axis) {
      for (auto rule = given.rbegin(); rule != given.rend(); ++rule) {
        if (rule->axis != axis || (rule->scope != RuleScope::kAll && rule->scope != scope))
          continue;
        for (int d = static_cast<int>(type.dims.size()) - 1; d >= 0; --d) {
          if (type.dims[d].name == rule->dim) expected[axis] = sbp::Sbp::S(d);
        }
      }
      num_split += expected[axis].is_split();
    }
    EXPECT_EQ(ToText(rules.LayoutOf(type, scope), mesh), ToText(expected, mesh))
        << "seed " << seed << ": " << ToText(type) << " under " << given.size() << " rules";
  }
  EXPECT_GT(num_split, 100);
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
