#include "actors/engine/feed.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;

class NoFeed final : public DataFeed {
 public:
  absl::Status Fill(const std::string&, int64_t, int64_t, const TensorSlice&, void*) override {
    return absl::OkStatus();
  }
};

// The slice is rows 2 and 3, columns 4 to 6 of [4, 8].
PlanActor Source(int64_t below) {
  PlanActor actor;
  actor.kind = ActorKind::kSource;
  actor.feed = "x";
  actor.feed_slice = {DType::kI32, {2, 3}, {2, 4}, {4, 8}};
  actor.feed_below = below;
  actor.feed_reader = "an index along dimension v of \"table\"";
  return actor;
}

absl::Status Check(int64_t below, const std::vector<int32_t>& values) {
  NoFeed feed;
  return CheckFed(feed, Source(below), /*step=*/6, /*micro_batch=*/1, values.data());
}

TEST(CheckFed, ValuesInRangePass) {
  EXPECT_TRUE(Check(10, {0, 1, 2, 9, 9, 0}).ok());
  EXPECT_TRUE(Check(1, {0, 0, 0, 0, 0, 0}).ok());
  EXPECT_TRUE(Check(int64_t{1} << 31, {0, INT32_MAX, 0, 0, 0, 0}).ok());
  EXPECT_TRUE(Check(0, {-1, INT32_MAX, INT32_MIN, 0, 0, 0}).ok()) << "no range";
}

TEST(CheckFed, EveryPlaceIsLookedAt) {
  for (size_t at = 0; at < 6; ++at) {
    for (int32_t value : {10, -1, INT32_MAX, INT32_MIN}) {
      std::vector<int32_t> values(6, 9);
      values[at] = value;
      EXPECT_EQ(Check(10, values).code(), absl::StatusCode::kInvalidArgument)
          << value << " at " << at;
    }
  }
  std::vector<int32_t> negative(6, 0);
  negative[5] = -1;
  EXPECT_FALSE(Check(int64_t{1} << 31, negative).ok());
}

TEST(CheckFed, TheIgnoredValueAlonePassesOutsideTheRange) {
  NoFeed feed;
  PlanActor actor = Source(10);
  actor.feed_ignored = -100;
  std::vector<int32_t> values = {0, -100, 9, -100, -100, 3};
  EXPECT_TRUE(CheckFed(feed, actor, 6, 1, values.data()).ok());
  for (size_t at = 0; at < values.size(); ++at) {
    for (const int32_t wrong : {10, -1, -99, -101}) {
      std::vector<int32_t> spoilt = values;
      spoilt[at] = wrong;
      const std::string message(CheckFed(feed, actor, 6, 1, spoilt.data()).message());
      EXPECT_THAT(message, HasSubstr("a value from 0 to 9 or the ignored value -100, an index"));
      EXPECT_THAT(message, HasSubstr(absl::StrCat("found ", wrong)));
    }
  }
}

TEST(CheckFed, TheErrorNamesInputSamplePositionValueRangeAndReader) {
  std::string message(Check(10, {0, 0, 0, 0, 12, 0}).message());
  EXPECT_THAT(
      message,
      HasSubstr("W0906 at input x of the model, step 7, micro-batch 1, row 3, position [5]"));
  EXPECT_THAT(
      message,
      HasSubstr("expected a value from 0 to 9, an index along dimension v of \"table\"; found 12"));
}

TEST(CheckFed, AnEmptyShardPasses) {
  PlanActor actor = Source(10);
  actor.feed_slice.shape = {0, 3};
  NoFeed feed;
  EXPECT_TRUE(CheckFed(feed, actor, 0, 0, nullptr).ok());
}

}  // namespace
}  // namespace weir::actors
