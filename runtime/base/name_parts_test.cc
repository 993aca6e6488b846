#include "runtime/base/name_parts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {
      "layer_norm", "reduce_mean",           "reduce_sum", "rms_norm",
      "softmax",    "softmax_cross_entropy", "sub"};
  return names;
}

TEST(NamePartsTest, AWholePartOfANameFindsIt) {
  EXPECT_THAT(NamesWithPart("mean", Names()), ElementsAre("reduce_mean"));
  EXPECT_THAT(NamesWithPart("sum", Names()), ElementsAre("reduce_sum"));
  EXPECT_THAT(NamesWithPart("norm", Names()), ElementsAre("layer_norm", "rms_norm"));
  EXPECT_THAT(NamesWithPart("cross_entropy", Names()), ElementsAre("softmax_cross_entropy"));
  EXPECT_THAT(NamesWithPart("entrop", Names()), IsEmpty());
  EXPECT_THAT(NamesWithPart("_", Names()), IsEmpty());
}

TEST(NamePartsTest, NamesWithoutCommasBetweenAreFound) {
  const std::vector<std::string> names = {"must", "crush", "crush_b", "_b", "mu", "st"};
  EXPECT_THAT(GluedNames("mustcrushcrush_b", names), ElementsAre("must", "crush", "crush_b"));
  EXPECT_THAT(GluedNames("mustmust", names), ElementsAre("must", "must"));
  EXPECT_THAT(GluedNames("must", names), IsEmpty());
  EXPECT_THAT(GluedNames("mustx", names), IsEmpty());
  EXPECT_THAT(GluedNames("xmust", names), IsEmpty());
  EXPECT_THAT(GluedNames("", names), IsEmpty());
  EXPECT_THAT(GluedNames("aa", {""}), IsEmpty());
}

TEST(NamePartsTest, LettersInANameOrANameInTheWordAreASecondChoice) {
  EXPECT_THAT(NamesLike("entrop", Names()), ElementsAre("softmax_cross_entropy"));
  EXPECT_THAT(NamesLike("softmax", Names()), ElementsAre("softmax", "softmax_cross_entropy"));
  EXPECT_THAT(NamesLike("fused_softmax", Names()), ElementsAre("softmax"));
  EXPECT_THAT(NamesLike("su", Names()), IsEmpty());
  EXPECT_THAT(NamesLike("convolution", Names()), IsEmpty());
}

TEST(NamePartsTest, WholePartsComeBeforeLettersAndLettersBeforeTheRest) {
  EXPECT_EQ(SuggestedNames("sum", Names()), "reduce_sum") << "although sub is nearer by letters";
  EXPECT_EQ(SuggestedNames("norm", Names()), "one of layer_norm, rms_norm");
  EXPECT_EQ(SuggestedNames("sofmax", Names()), "softmax");
  EXPECT_EQ(SuggestedNames("subtract", Names()), "sub");
  EXPECT_EQ(SuggestedNames("entrop", Names()), "softmax_cross_entropy");
  EXPECT_EQ(SuggestedNames("convolution", Names()), "");
  EXPECT_EQ(SuggestedNames("einsum", {"minimum", "maximum"}), "") << "half of the letters differ";
  EXPECT_EQ(SuggestedNames(std::string(100'000'000, 'x'), Names()), "");
}

}  // namespace
}  // namespace weir
