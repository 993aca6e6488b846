#include "sbp/factor_rule.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Texts(const FactorRule& rule) {
  std::vector<std::string> texts;
  for (const AxisSignature& signature : LegalSignatures(rule)) texts.push_back(signature.ToText());
  return texts;
}

// x[m, k], w[k, n], bias[n] -> y[m, n]
FactorRule Matmul() {
  FactorRule rule;
  rule.factors = {{"m", 8}, {"k", 6}, {"n", 4}};
  rule.inputs = {{{{0}, {1}}}, {{{1}, {2}}}, {{{2}}, true}};
  rule.outputs = {{{{0}, {2}}}};
  rule.linear = {{{0, 2}, {0}}, {{1, 2}, {0}}};
  return rule;
}

// q[b, s, (g r), d], k[b, s, g, d] -> o[b, s, (g r), d]
FactorRule Attention() {
  FactorRule rule;
  rule.factors = {{"b", 2}, {"s", 16, 1, true}, {"g", 4, 2}, {"r", 8, 1, true}, {"d", 16, 1, true}};
  rule.inputs = {{{{0}, {1}, {2, 3}, {4}}}, {{{0}, {1}, {2}, {4}}}};
  rule.outputs = {{{{0}, {1}, {2, 3}, {4}}}};
  return rule;
}

TEST(FactorRule, MatmulHasTheSignaturesOfTheTextbook) {
  EXPECT_THAT(Texts(Matmul()),
              ElementsAre("B, B, B -> B",                  //
                          "S(0), B, B -> S(0)",            // m
                          "S(1), S(0), P(sum) -> P(sum)",  // k, the bias added once
                          "B, S(1), S(0) -> S(1)",         // n
                          "P(sum), B, P(sum) -> P(sum)", "B, P(sum), P(sum) -> P(sum)"));
}

TEST(FactorRule, SignaturesSayWhatTheyAreMadeOf) {
  std::vector<AxisSignature> signatures = LegalSignatures(Matmul());
  EXPECT_EQ(signatures[0].factor, -1);
  EXPECT_EQ(signatures[0].linear, -1);
  EXPECT_EQ(signatures[2].factor, 1);
  EXPECT_EQ(signatures[5].factor, -1);
  EXPECT_EQ(signatures[5].linear, 1);
}

TEST(FactorRule, WholeAndMinorFactorsAreNotSplit) {
  EXPECT_THAT(Texts(Attention()),
              ElementsAre("B, B -> B", "S(0), S(0) -> S(0)", "S(2), S(2) -> S(2)"));
  FactorRule rule = Attention();
  rule.factors[3].whole = false;  // r is still minor in q
  EXPECT_FALSE(IsSplittable(rule, 3));
}

TEST(FactorRule, AllBroadcastIsLegalEvenIfEveryFactorIsWhole) {
  FactorRule rule;
  rule.factors = {{"n", 4, 1, true}};
  rule.inputs = {{{{0}}}};
  rule.outputs = {{{{0}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B"));
  EXPECT_THAT(Texts(FactorRule{}), ElementsAre(" -> "));
}

TEST(FactorRule, AFactorOfSizeOneIsSplitLikeAnyOther) {
  FactorRule rule;
  rule.factors = {{"n", 1}};
  rule.inputs = {{{{0}}}};
  rule.outputs = {{{{0}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B", "S(0) -> S(0)"));
}

TEST(FactorRule, AReductionByMaximumGivesPartialMaxima) {
  FactorRule rule;
  rule.factors = {{"m", 4}, {"n", 8, 1, false, Combiner::kMax}};
  rule.inputs = {{{{0}, {1}}}};
  rule.outputs = {{{{0}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B", "S(0) -> S(0)", "S(1) -> P(max)"));
}

TEST(FactorRule, AFactorTwiceInOneOperandIsNotSplit) {
  FactorRule rule;  // the diagonal: x[n, n] -> y[n]
  rule.factors = {{"n", 4}};
  rule.inputs = {{{{0}, {0}}}};
  rule.outputs = {{{{0}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B"));
}

TEST(FactorRule, AFactorNobodyHasIsNotSplit) {
  FactorRule rule;
  rule.factors = {{"n", 4}, {"idle", 4}};
  rule.inputs = {{{{0}}}};
  rule.outputs = {{{{0}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B", "S(0) -> S(0)"));
}

TEST(FactorRule, AnOutputFactorThatNoInputHasSplitsTheOutputOfBroadcastInputs) {
  FactorRule rule;  // expand: x[m] -> y[m, n]
  rule.factors = {{"m", 4}, {"n", 8}};
  rule.inputs = {{{{0}}}};
  rule.outputs = {{{{0}, {1}}}};
  EXPECT_THAT(Texts(rule), ElementsAre("B -> B", "S(0) -> S(0)", "B -> S(1)"));
}

TEST(FactorRule, AnAdditiveInputForbidsSplitsWherePartialsOfItWouldBeWrong) {
  FactorRule maximum = Matmul();
  maximum.factors[1].combiner = Combiner::kMax;
  EXPECT_FALSE(IsSplittable(maximum, 1));
  FactorRule two_outputs = Matmul();  // one output keeps k
  two_outputs.outputs.push_back({{{0}, {1}}});
  EXPECT_FALSE(IsSplittable(two_outputs, 1));
  two_outputs.inputs[2].additive = false;
  EXPECT_TRUE(IsSplittable(two_outputs, 1));
}

TEST(FactorRule, OutputsOutsideALinearGroupStayBroadcast) {
  FactorRule rule;
  rule.factors = {{"n", 4}};
  rule.inputs = {{{{0}}}, {{{0}}}};
  rule.outputs = {{{{0}}}, {{{0}}}};
  rule.linear = {{{0}, {1}}};
  EXPECT_EQ(Texts(rule).back(), "P(sum), B -> B, P(sum)");
}

TensorType Type(std::vector<TensorDim> dims) { return TensorType{DType::kF32, std::move(dims)}; }

std::vector<TensorType> AttentionInputs(int64_t q_unit, int64_t k_unit) {
  return {
      Type({{"batch", 2, 1}, {"sequence", 16, 1}, {"heads", 32, q_unit}, {"head_dim", 16, 1}}),
      Type({{"batch", 2, 1}, {"sequence", 16, 1}, {"kv_heads", 4, k_unit}, {"head_dim", 16, 1}})};
}

TEST(Units, ADimensionNeedsTheMajorUnitTimesTheMinorSizes) {
  FactorRule rule = Attention();
  EXPECT_EQ(DimUnit(rule, {2, 3}), 16);
  EXPECT_EQ(DimUnit(rule, {2}), 2);
  EXPECT_EQ(DimUnit(rule, {}), 1);
}

TEST(Units, AgreeOnlyIfEveryOperandCutsTheFactorAlike) {
  FactorRule rule = Attention();
  auto agree = [&](int64_t q_unit, int64_t k_unit) {
    std::vector<TensorType> inputs = AttentionInputs(q_unit, k_unit);
    return UnitsAgree(rule, 2, inputs, {inputs[0]});
  };
  EXPECT_TRUE(agree(16, 2));
  EXPECT_TRUE(agree(32, 4));
  EXPECT_FALSE(agree(32, 2));  // one unit against two
  EXPECT_FALSE(agree(8, 1));   // kv_heads cut below the factor's unit of 2
  EXPECT_FALSE(agree(1, 2));   // heads cut inside a group
  EXPECT_TRUE(UnitsAgree(rule, 0, AttentionInputs(1, 1), {AttentionInputs(1, 1)[0]}));
}

TEST(Units, AgreementMeansThatNestedShardsLineUp) {
  FactorRule rule = Attention();
  std::vector<TensorType> inputs = AttentionInputs(16, 2);
  ASSERT_TRUE(UnitsAgree(rule, 2, inputs, {inputs[0]}));
  Mesh mesh = *Mesh::Parse("a=3,b=2");
  Layout layout = {Sbp::S(2), Sbp::S(2)};
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    Rect q = ShardRect(inputs[0], layout, mesh, mesh.CoordsOf(rank));
    Rect k = ShardRect(inputs[1], layout, mesh, mesh.CoordsOf(rank));
    EXPECT_EQ(q.begin[2], k.begin[2] * 8);
    EXPECT_EQ(q.end[2], k.end[2] * 8);
  }
}

TEST(Units, CheckNamesTheOperandAndTheUnitThatWouldDo) {
  FactorRule rule = Attention();
  std::vector<TensorType> good = AttentionInputs(16, 2);
  EXPECT_TRUE(CheckUnits(rule, good, {good[0]}).ok());
  std::vector<TensorType> bad = AttentionInputs(1, 2);
  EXPECT_THAT(std::string(CheckUnits(rule, bad, {bad[0]}).message()),
              AllOf(HasSubstr("W0232"), HasSubstr("input 0, dimension heads"),
                    HasSubstr("Try: heads=32/16")));
  bad = AttentionInputs(16, 4);
  EXPECT_THAT(std::string(CheckUnits(rule, bad, {good[0]}).message()),
              AllOf(HasSubstr("W0232"), HasSubstr("kv_heads"), HasSubstr("2 units"),
                    HasSubstr("Try: kv_heads=4/2")));
}

TEST(Units, CheckNamesOperandsThatDoNotFitTheRule) {
  FactorRule rule = Matmul();
  TensorType x = Type({{"m", 8, 1}, {"k", 6, 1}}), w = Type({{"k", 6, 1}, {"n", 4, 1}}),
             bias = Type({{"n", 4, 1}});
  TensorType y = Type({{"m", 8, 1}, {"n", 4, 1}});
  EXPECT_TRUE(CheckUnits(rule, {x, w, bias}, {y}).ok());
  EXPECT_THAT(std::string(CheckUnits(rule, {x, w}, {y}).message()), HasSubstr("W0230"));
  EXPECT_THAT(std::string(CheckUnits(rule, {x, bias, w}, {y}).message()), HasSubstr("W0230"));
  EXPECT_THAT(std::string(CheckUnits(rule, {w, w, bias}, {y}).message()),
              AllOf(HasSubstr("W0231"), HasSubstr("size 8")));
  TensorType y_cut = Type({{"m", 8, 1}, {"n", 4, 2}});
  EXPECT_THAT(
      std::string(CheckUnits(rule, {x, w, bias}, {y_cut}).message()),
      AllOf(HasSubstr("W0232"), HasSubstr("output 0, dimension n"), HasSubstr("Try: n=4/1")));
}

TEST(FactorRule, JoinMakesOneLayoutPerOperand) {
  std::vector<AxisSignature> legal = LegalSignatures(Matmul());
  Signature signature = Join({legal[1], legal[2]});
  Mesh mesh = *Mesh::Parse("dp=2,tp=2");
  EXPECT_EQ(ToText(signature.inputs[0], mesh), "[dp: S(0), tp: S(1)]");
  EXPECT_EQ(ToText(signature.inputs[1], mesh), "[dp: B, tp: S(0)]");
  EXPECT_EQ(ToText(signature.inputs[2], mesh), "[dp: B, tp: P(sum)]");
  EXPECT_EQ(ToText(signature.outputs[0], mesh), "[dp: S(0), tp: P(sum)]");
  EXPECT_TRUE(Join({}).inputs.empty());
}

}  // namespace
}  // namespace weir::sbp
