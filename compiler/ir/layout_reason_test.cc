#include "compiler/ir/layout_reason.h"

#include "compiler/testing/small_model.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using Kind = LayoutReason::Kind;

TEST(LayoutReasonTest, TheTextNamesTheAxisOfAReasonThatIsAboutOne) {
  const sbp::Mesh mesh = MeshOf("dp=2,tp=2");
  EXPECT_EQ(ToText(LayoutReasons(), mesh), "");
  EXPECT_EQ(
      ToText(LayoutReasons{{Kind::kRule, "batch -> dp", 0}, {Kind::kFollows, "ffn", 1}}, mesh),
      "dp: rule batch -> dp, tp: follows its operand, split by ffn");
  EXPECT_EQ(ToText(LayoutReasons{{Kind::kReader, "y"}}, mesh), "for y");
}

TEST(LayoutReasonTest, AChangeHasTheReasonsOfTheAxesThatItChanges) {
  const LayoutReasons why = {{Kind::kRule, "batch -> dp", 0}, {Kind::kPartialSums, "", 1}};
  const sbp::Layout from = {sbp::Sbp::S(0), sbp::Sbp::P()}, to = {sbp::Sbp::S(0), sbp::Sbp::B()};
  EXPECT_EQ(ChangedAxes(from, to), std::vector<int>{1});
  EXPECT_EQ(ReasonsOfChange(why, from, to), LayoutReasons{why[1]});
  EXPECT_EQ(ReasonsOfChange(why, from, from), LayoutReasons());
  EXPECT_EQ(ReasonsOfChange({{Kind::kForward}}, from, to), LayoutReasons())
      << "about no single axis";
}

}  // namespace
}  // namespace weir::compiler
