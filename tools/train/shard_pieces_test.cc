#include "tools/train/shard_pieces.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::train {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Texts(const std::vector<TensorSlice>& slices) {
  std::vector<std::string> texts;
  for (const TensorSlice& slice : slices) texts.push_back(ToText(slice));
  return texts;
}

TEST(ShardPiecesTest, ASliceThatFitsStaysWhole) {
  const TensorSlice slice = TensorSlice::Whole(DType::kF32, {2, 3});
  EXPECT_THAT(SplitSlice(slice, 24), ElementsAre(slice));
  const TensorSlice scalar = TensorSlice::Whole(DType::kF32, {});
  EXPECT_THAT(SplitSlice(scalar, 1), ElementsAre(scalar));
}

TEST(ShardPiecesTest, ASliceIsSplitIntoRowsAndRowsThatAreTooLongAreSplitToo) {
  TensorSlice slice{DType::kF32, {3, 4}, {5, 0}, {8, 4}};
  EXPECT_THAT(Texts(SplitSlice(slice, 32)),
              ElementsAre("f32[2, 4] at [5, 0] of [8, 4]", "f32[1, 4] at [7, 0] of [8, 4]"));
  EXPECT_THAT(Texts(SplitSlice({DType::kF32, {2, 3}, {0, 0}, {2, 3}}, 8)),
              ElementsAre("f32[1, 2] at [0, 0] of [2, 3]", "f32[1, 1] at [0, 2] of [2, 3]",
                          "f32[1, 2] at [1, 0] of [2, 3]", "f32[1, 1] at [1, 2] of [2, 3]"));
}

TEST(ShardPiecesTest, ThePiecesTogetherAreTheSliceInItsOrder) {
  const TensorSlice slice{DType::kF32, {3, 5, 7}, {1, 0, 2}, {4, 5, 9}};
  for (int64_t bytes_max = 1; bytes_max <= slice.bytes() + 4; bytes_max += 3) {
    int64_t bytes = 0;
    for (const TensorSlice& piece : SplitSlice(slice, bytes_max)) {
      EXPECT_TRUE(IsSound(piece));
      EXPECT_TRUE(piece.bytes() <= bytes_max || piece.num_elements() == 1);
      // The first element of the piece lies in the slice where the pieces before it end.
      int64_t at = 0;
      for (size_t axis = 0; axis < 3; ++axis)
        at = at * slice.shape[axis] + piece.offset[axis] - slice.offset[axis];
      EXPECT_EQ(at * SizeOf(slice.dtype), bytes);
      bytes += piece.bytes();
    }
    EXPECT_EQ(bytes, slice.bytes());
  }
}

TEST(ShardPiecesTest, ASliceOutsideOfItsTensorIsNotSound) {
  EXPECT_TRUE(IsSound({DType::kF32, {2}, {3}, {5}}));
  EXPECT_FALSE(IsSound({DType::kF32, {2}, {4}, {5}}));
  EXPECT_FALSE(IsSound({DType::kF32, {-1}, {0}, {5}}));
  EXPECT_FALSE(IsSound({DType::kF32, {2}, {-1}, {5}}));
  EXPECT_FALSE(IsSound({DType::kF32, {2, 1}, {0}, {5}}));
  EXPECT_FALSE(IsSound({DType::kF32, {1}, {int64_t{1} << 62}, {int64_t{1} << 62}}));
}

}  // namespace
}  // namespace weir::train
