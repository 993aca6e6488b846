#include "runtime/base/name_pattern.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

bool Fits(absl::string_view name, absl::string_view pattern) {
  return FitsPattern(name, pattern, Wildcards::kStarAndQuestionMark);
}

TEST(FitsPattern, AStarStandsForAnyCharactersAndAQuestionMarkForOne) {
  EXPECT_TRUE(Fits("layers.0.wq", "layers.0.wq"));
  EXPECT_TRUE(Fits("layers.0.wq", "*"));
  EXPECT_TRUE(Fits("layers.0.wq", "*.wq"));
  EXPECT_TRUE(Fits("layers.0.wq", "layers.?.w*"));
  EXPECT_TRUE(Fits("layers.10.wq", "layers.*.wq"));
  EXPECT_TRUE(Fits("aXbXb", "a*Xb")) << "the star goes back";
  EXPECT_TRUE(Fits("", "*"));
  EXPECT_FALSE(Fits("layers.10.wq", "layers.?.wq"));
  EXPECT_FALSE(Fits("layers.0.wq", "wq"));
  EXPECT_FALSE(Fits("layers.0.wqx", "*.wq"));
  EXPECT_FALSE(Fits("wq", "wq?"));
  EXPECT_FALSE(Fits("", "?"));
}

TEST(FitsPattern, AQuestionMarkIsACharacterWhereOnlyStarsAreWild) {
  EXPECT_TRUE(FitsPattern("left.0", "l*.0", Wildcards::kStar));
  EXPECT_FALSE(FitsPattern("left.0", "left.?", Wildcards::kStar));
  EXPECT_TRUE(FitsPattern("left.?", "left.?", Wildcards::kStar));
}

}  // namespace
}  // namespace weir
