#include "runtime/base/wrap_text.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(WrapTextTest, BreaksAtSpacesAndIndentsWhatFollows) {
  EXPECT_EQ(WrapText("weir: one two three four", 12), "weir: one\n  two three\n  four");
  EXPECT_EQ(WrapText("  a line that is long\nshort\n", 12),
            "  a line\n    that is\n    long\nshort\n");
}

TEST(WrapTextTest, LeavesShortLinesAndTheirSpacesAlone) {
  const std::string table = "  name      bytes\n  x          12\n\n";
  EXPECT_EQ(WrapText(table, 40), table);
}

TEST(WrapTextTest, KeepsAWordThatIsLongerThanTheLine) {
  EXPECT_EQ(WrapText("see /a/very/long/path/indeed now", 12),
            "see\n  /a/very/long/path/indeed\n  now");
}

TEST(WrapTextTest, ANumberKeepsItsUnit) {
  EXPECT_EQ(WrapText("rank 0 needs 41.4 MiB, all of it", 18),
            "rank 0 needs\n  41.4 MiB, all of\n  it");
  EXPECT_EQ(WrapText("takes about 12 ms", 15), "takes about\n  12 ms");
}

TEST(WrapTextTest, CountsCharactersNotBytes) {
  EXPECT_EQ(NumCharacters("größer …"), 8);
  EXPECT_EQ(WrapText("größer größer", 13), "größer größer");
  EXPECT_EQ(CutText("größer als", 7), "größer…");
  EXPECT_EQ(CutText("größer", 6), "größer");
}

}  // namespace
}  // namespace weir
