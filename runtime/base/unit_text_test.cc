#include "runtime/base/unit_text.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(UnitTextTest, DurationsAreWhatAPersonWaits) {
  EXPECT_EQ(DurationText(0.85), "850ms");
  EXPECT_EQ(DurationText(72), "1m12s");
  EXPECT_EQ(DurationText(11100), "3h05m");
  EXPECT_EQ(DurationText(std::nan("")), "?");
}

TEST(UnitTextTest, BytesTakeTheLargestUnitThatLeavesAtLeastOne) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1024), "1.0 KiB");
  EXPECT_EQ(BytesText(398131), "388.8 KiB");
  EXPECT_EQ(BytesText(2048 * 1024), "2.0 MiB");
  EXPECT_EQ(BytesText(8886.0 * 1024), "8.7 MiB");
  EXPECT_EQ(BytesText(3.5 * (1LL << 40)), "3.5 TiB");
  EXPECT_EQ(BytesText(5e18), "4547474 TiB");
}

TEST(UnitTextTest, ASizeThatRoundsUpToTheNextUnitIsShownInIt) {
  EXPECT_EQ(BytesText((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(TimeText(999'999), "1.00 ms");
}

TEST(UnitTextTest, TimesHaveThreeDigits) {
  EXPECT_EQ(TimeText(0), "0 ns");
  EXPECT_EQ(TimeText(850), "850 ns");
  EXPECT_EQ(TimeText(2'985'400), "2.99 ms");
  EXPECT_EQ(TimeText(421'700), "422 us");
  EXPECT_EQ(TimeText(85'150'000), "85.2 ms");
  EXPECT_EQ(TimeText(17.98e9), "18.0 s");
  EXPECT_EQ(TimeText(std::nan("")), "?");
}

TEST(UnitTextTest, AColumnKeepsTheUnitOfItsLargestValue) {
  EXPECT_EQ(TimeText(421'700, TimeUnitOf(75.3e6)), "0.42 ms");
  EXPECT_EQ(BytesText(512 * 1024, ByteUnitOf(30e6)), "0.5 MiB");
}

TEST(UnitTextTest, CountsHaveTheirDigitsInGroupsOrALetter) {
  EXPECT_EQ(CountText(7), "7");
  EXPECT_EQ(CountText(685'997), "685,997");
  EXPECT_EQ(CountText(-1'234'567), "-1,234,567");
  EXPECT_EQ(ShortCount(512), "512");
  EXPECT_EQ(ShortCount(52'300), "52.3k");
  EXPECT_EQ(ShortCount(1.2e6), "1.20M");
  EXPECT_EQ(Plural(1, "stage"), "1 stage");
  EXPECT_EQ(Plural(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(Plural(1000, "device"), "1,000 devices");
}

}  // namespace
}  // namespace weir
