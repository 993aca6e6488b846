#include "runtime/store/dataset.h"

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/idx_dataset.h"
#include "runtime/store/idx_file.h"
#include "runtime/store/index_permutation.h"
#include "runtime/store/synthetic_dataset.h"
#include "runtime/store/token_dataset.h"
#include "zlib.h"

namespace weir::store {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string WriteGzip(const std::string& name, const std::string& bytes) {
  std::string path = TemporaryPath(name);
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return path;
}

std::string IdxBytes(const std::vector<uint32_t>& shape, const std::string& data) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  for (uint32_t size : shape)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(size >> shift));
  return bytes + data;
}

// Writes n images of 2 x 3 whose pixels are all the number of the image, and labels n % 5.
IdxDataOptions WriteImages(const std::string& name, int n) {
  std::string images, labels;
  for (int i = 0; i < n; ++i) {
    images += std::string(6, static_cast<char>(i));
    labels.push_back(static_cast<char>(i % 5));
  }
  IdxDataOptions options;
  options.images =
      WriteTemporary(name + "-images", IdxBytes({static_cast<uint32_t>(n), 2, 3}, images));
  options.labels = WriteGzip(name + "-labels.gz", IdxBytes({static_cast<uint32_t>(n)}, labels));
  options.test_images = options.images;
  options.test_labels = options.labels;
  options.batch = 4;
  return options;
}

std::string Alphabet(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text.push_back(static_cast<char>((i * 7 + i / 13) % 251));
  return text;
}

template <typename T>
std::vector<T> Filled(const Dataset& data, const std::string& feed, const BatchPosition& position,
                      const TensorSlice& slice) {
  std::vector<T> out(static_cast<size_t>(slice.num_elements()));
  absl::Status status = data.Fill(feed, position, slice, out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Cuts the batch into every pair of row and column ranges and compares with the whole.
template <typename T>
void ExpectSlicesEqualWhole(const Dataset& data, const std::string& feed, const Shape& shape,
                            DType dtype) {
  BatchPosition position;
  position.step = 3;
  position.micro_batch = 1;
  position.micro_batches = 2;
  std::vector<T> whole = Filled<T>(data, feed, position, TensorSlice::Whole(dtype, shape));
  for (int64_t r0 = 0; r0 < shape[0]; ++r0)
    for (int64_t r1 = r0; r1 <= shape[0]; ++r1)
      for (int64_t c0 = 0; c0 < shape[1]; c0 += 2)
        for (int64_t c1 = c0; c1 <= shape[1]; ++c1) {
          std::vector<T> part =
              Filled<T>(data, feed, position, {dtype, {r1 - r0, c1 - c0}, {r0, c0}, shape});
          size_t i = 0;
          for (int64_t r = r0; r < r1; ++r)
            for (int64_t c = c0; c < c1; ++c)
              ASSERT_EQ(part[i++], whole[static_cast<size_t>(r * shape[1] + c)]);
        }
}

TokenDataOptions TextOptions(const std::string& path) {
  TokenDataOptions options;
  options.paths = {path};
  options.held_out = 0.1;
  options.batch = 4;
  options.sequence = 6;
  options.seed = 11;
  return options;
}

TEST(TextDatasetTest, SlicesOfABatchEqualTheWholeBatch) {
  auto data = OpenTokenDataset(TextOptions(WriteTemporary("slices.txt", Alphabet(1000))));
  ASSERT_TRUE(data.ok()) << data.status();
  ExpectSlicesEqualWhole<int32_t>(**data, "tokens", {4, 6}, DType::kI32);
  ExpectSlicesEqualWhole<int32_t>(**data, "targets", {4, 6}, DType::kI32);
}

TEST(TextDatasetTest, TargetsAreTheTokensThatFollow) {
  auto data = OpenTokenDataset(TextOptions(WriteTemporary("shift.txt", Alphabet(1000))));
  ASSERT_TRUE(data.ok());
  TensorSlice slice = TensorSlice::Whole(DType::kI32, {4, 6});
  auto tokens = Filled<int32_t>(**data, "tokens", {}, slice);
  auto targets = Filled<int32_t>(**data, "targets", {}, slice);
  for (int row = 0; row < 4; ++row)
    for (int i = 0; i + 1 < 6; ++i) EXPECT_EQ(targets[row * 6 + i], tokens[row * 6 + i + 1]);
}

TEST(TextDatasetTest, AStepHasTheSameSamplesHoweverItIsCutIntoMicroBatches) {
  auto data = OpenTokenDataset(TextOptions(WriteTemporary("micro.txt", Alphabet(1000))));
  ASSERT_TRUE(data.ok());
  BatchPosition one{DataPart::kTrain, 5, 0, 1};
  auto whole = Filled<int32_t>(**data, "tokens", one, TensorSlice::Whole(DType::kI32, {4, 6}));
  std::vector<int32_t> joined;
  for (int64_t m = 0; m < 2; ++m) {
    auto half = Filled<int32_t>(**data, "tokens", {DataPart::kTrain, 5, m, 2},
                                TensorSlice::Whole(DType::kI32, {2, 6}));
    joined.insert(joined.end(), half.begin(), half.end());
  }
  EXPECT_EQ(joined, whole);
}

TEST(TextDatasetTest, TrainingNeverSeesHeldOutBytesAndReachesBothEndsOfItsPart) {
  std::string text(200, 'a');
  for (size_t i = 180; i < 200; ++i) text[i] = 'z';
  text[0] = 'b';
  text[179] = 'y';
  TokenDataOptions options = TextOptions(WriteTemporary("parts.txt", text));
  options.batch = 2;
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  std::set<int32_t> seen;
  for (int64_t step = 0; step < 1000; ++step) {
    for (const char* feed : {"tokens", "targets"}) {
      for (int32_t token : Filled<int32_t>(**data, feed, {DataPart::kTrain, step, 0, 1},
                                           TensorSlice::Whole(DType::kI32, {2, 6}))) {
        seen.insert(token);
      }
    }
  }
  EXPECT_EQ(seen, (std::set<int32_t>{'a', 'b', 'y'}));
}

TEST(TextDatasetTest, HeldOutWindowsFollowOneAnotherAndEnd) {
  std::string text = Alphabet(1000);
  auto data = OpenTokenDataset(TextOptions(WriteTemporary("held.txt", text)));
  ASSERT_TRUE(data.ok());
  // 100 bytes are held out: 16 windows of 6 (and the byte after), 4 batches of 4.
  EXPECT_EQ((*data)->num_held_out_batches(), 4);
  TensorSlice slice = TensorSlice::Whole(DType::kI32, {4, 6});
  size_t at = 900;
  for (int64_t batch = 0; batch < 4; ++batch) {
    for (int32_t token :
         Filled<int32_t>(**data, "tokens", {DataPart::kHeldOut, batch, 0, 1}, slice)) {
      ASSERT_EQ(token, static_cast<unsigned char>(text[at++]));
    }
  }
  std::vector<int32_t> out(24);
  EXPECT_FALSE((*data)->Fill("tokens", {DataPart::kHeldOut, 4, 0, 1}, slice, out.data()).ok());
}

TEST(TextDatasetTest, DifferentSeedsAndStepsDiffer) {
  TokenDataOptions options = TextOptions(WriteTemporary("seeds.txt", Alphabet(1000)));
  auto a = OpenTokenDataset(options);
  options.seed = 12;
  auto b = OpenTokenDataset(options);
  TensorSlice slice = TensorSlice::Whole(DType::kI32, {4, 6});
  auto first = Filled<int32_t>(**a, "tokens", {}, slice);
  EXPECT_NE(first, Filled<int32_t>(**b, "tokens", {}, slice));
  EXPECT_NE(first, Filled<int32_t>(**a, "tokens", {DataPart::kTrain, 1, 0, 1}, slice));
}

TEST(TextDatasetTest, RefusesFilesThatAreTooShortWithTheByteCounts) {
  TokenDataOptions options = TextOptions(WriteTemporary("short.txt", "abcdef"));
  options.held_out = 0;
  auto train = OpenTokenDataset(options);
  EXPECT_EQ(train.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(train.status().message()), HasSubstr("at least 7 bytes"));
  EXPECT_THAT(std::string(train.status().message()), HasSubstr("6 of the file's 6 bytes"));
  auto held = OpenTokenDataset(TextOptions(WriteTemporary("short_held.txt", Alphabet(100))));
  EXPECT_EQ(held.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(held.status().message()), HasSubstr("10 bytes held out, 1 windows"));
  options.paths = {"/no/such/text"};
  EXPECT_EQ(OpenTokenDataset(options).status().code(), absl::StatusCode::kNotFound);
}

TEST(TextDatasetTest, RefusesBytesOutsideTheVocabulary) {
  TokenDataOptions options = TextOptions(WriteTemporary(
      "vocabulary.txt", absl::StrCat(std::string(500, 'a'), "z", std::string(500, 'a'))));
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  FeedRequest request{"x",    "targets", DType::kI32,
                      {4, 6}, 'z' + 1,   "an index along dimension v of \"logits\""};
  EXPECT_TRUE(CheckRequest(**data, request).ok());
  request.below = 'z';
  absl::Status status = CheckRequest(**data, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("byte 500: expected bytes below 122 for input x, an index along dimension "
                        "v of \"logits\"; found byte value 122"));
}

TEST(TextDatasetTest, RefusesFeedsAndShapesItCannotFill) {
  auto data = OpenTokenDataset(TextOptions(WriteTemporary("feeds.txt", Alphabet(1000))));
  ASSERT_TRUE(data.ok());
  std::vector<int32_t> out(100);
  absl::Status status =
      (*data)->Fill("token", {}, TensorSlice::Whole(DType::kI32, {4, 6}), out.data());
  EXPECT_THAT(std::string(status.message()), HasSubstr("from: \"tokens\""));
  EXPECT_FALSE(
      (*data)->Fill("tokens", {}, TensorSlice::Whole(DType::kI32, {4, 7}), out.data()).ok());
  EXPECT_FALSE(
      (*data)->Fill("tokens", {}, TensorSlice::Whole(DType::kF32, {4, 6}), out.data()).ok());
}

TEST(IndexPermutationTest, IsAPermutationForEverySizeAndDiffersByKey) {
  for (int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      int64_t at = IndexPermutation(5, size).At(i);
      ASSERT_TRUE(at >= 0 && at < size);
      seen.insert(at);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i)
    same += IndexPermutation(1, 1000).At(i) == IndexPermutation(2, 1000).At(i);
  EXPECT_LT(same, 20);
}

TEST(IdxDatasetTest, EachEpochSeesEveryImageOnceWithItsLabelInAnotherOrder) {
  auto data = OpenIdxDataset(WriteImages("epoch", 20));
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::vector<int>> epochs(2);
  for (int64_t step = 0; step < 10; ++step) {
    BatchPosition position{DataPart::kTrain, step, 0, 1};
    auto images =
        Filled<float>(**data, "images", position, TensorSlice::Whole(DType::kF32, {4, 6}));
    auto labels = Filled<int32_t>(**data, "labels", position, TensorSlice::Whole(DType::kI32, {4}));
    for (int row = 0; row < 4; ++row) {
      int number = static_cast<int>(std::lround(images[row * 6] * 255));
      EXPECT_EQ(labels[row], number % 5);
      epochs[step / 5].push_back(number);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) EXPECT_EQ(std::set<int>(epoch.begin(), epoch.end()).size(), 20u);
}

TEST(IdxDatasetTest, SlicesOfABatchEqualTheWholeBatchInAnyShape) {
  auto data = OpenIdxDataset(WriteImages("idx_slices", 20));
  ASSERT_TRUE(data.ok());
  ExpectSlicesEqualWhole<float>(**data, "images", {4, 6}, DType::kF32);
  auto flat = Filled<float>(**data, "images", {}, TensorSlice::Whole(DType::kF32, {4, 6}));
  auto square = Filled<float>(**data, "images", {}, TensorSlice::Whole(DType::kF32, {4, 2, 3}));
  EXPECT_EQ(flat, square);
}

TEST(IdxDatasetTest, HeldOutIsInOrderOnce) {
  auto data = OpenIdxDataset(WriteImages("idx_held", 21));
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)->num_held_out_batches(), 5);
  auto images = Filled<float>(**data, "images", {DataPart::kHeldOut, 1, 0, 1},
                              TensorSlice::Whole(DType::kF32, {4, 6}));
  EXPECT_EQ(std::lround(images[0] * 255), 4);
  std::vector<float> out(24);
  EXPECT_FALSE((*data)
                   ->Fill("images", {DataPart::kHeldOut, 5, 0, 1},
                          TensorSlice::Whole(DType::kF32, {4, 6}), out.data())
                   .ok());
}

TEST(IdxDatasetTest, RefusesLabelsCountsAndBatchesThatDoNotFit) {
  IdxDataOptions options = WriteImages("refuse", 20);
  options.batch = 21;
  EXPECT_THAT(std::string(OpenIdxDataset(options).status().message()),
              HasSubstr("at least one batch of 21"));
  options.batch = 4;
  options.labels = WriteTemporary("refuse-labels", IdxBytes({3}, std::string(3, '\0')));
  EXPECT_THAT(std::string(OpenIdxDataset(options).status().message()), HasSubstr("20 labels"));
  options.labels = "/no/such/labels";
  EXPECT_EQ(OpenIdxDataset(options).status().code(), absl::StatusCode::kNotFound);
}

TEST(IdxDatasetTest, LabelsBeyondTheRangeAreNamedInTrainingAndTestFiles) {
  IdxDataOptions options = WriteImages("range", 20);
  FeedRequest request{"c", "labels", DType::kI32,
                      {4}, 5,        "an index along dimension k of \"logits\""};
  EXPECT_TRUE(CheckRequest(**OpenIdxDataset(options), request).ok());
  request.below = 4;
  EXPECT_THAT(std::string(CheckRequest(**OpenIdxDataset(options), request).message()),
              HasSubstr("range-labels.gz, label 4: expected values below 4 for input c, an index "
                        "along dimension k of \"logits\"; found 4"));
  request.below = 5;
  options.test_labels = WriteTemporary("range-test-labels",
                                       IdxBytes({20}, absl::StrCat(std::string(19, '\0'), "\5")));
  EXPECT_THAT(std::string(CheckRequest(**OpenIdxDataset(options), request).message()),
              HasSubstr("range-test-labels, label 19"));
}

TEST(IdxDatasetTest, LabelsThatNobodyWantsNeedNoFile) {
  IdxDataOptions options = WriteImages("unlabelled", 20);
  options.labels.clear();
  EXPECT_EQ(OpenIdxDataset(options).status().code(), absl::StatusCode::kInvalidArgument)
      << "test labels without labels";
  options.test_labels.clear();
  auto data = OpenIdxDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->num_held_out_batches(), 5);
  ExpectSlicesEqualWhole<float>(**data, "images", {4, 6}, DType::kF32);
  int32_t out[4];
  EXPECT_FALSE((*data)->Fill("labels", {}, TensorSlice::Whole(DType::kI32, {4}), out).ok());
}

TEST(IdxDatasetTest, ImagesComeAsShareOfWhiteOrAsBytes) {
  auto data = OpenIdxDataset(WriteImages("bytes", 20));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(CheckRequest(**data, {"x", "images", DType::kI32, {4, 6}, 20, "table"}).ok());
  EXPECT_THAT(
      std::string(
          CheckRequest(**data, {"x", "images", DType::kI32, {4, 6}, 19, "table"}).message()),
      HasSubstr("pixel 114: expected values below 19"));
  EXPECT_THAT(
      std::string(CheckRequest(**data, {"x", "images", DType::kBF16, {4, 6}, 0, ""}).message()),
      HasSubstr("expected f32[samples, ...] with 6 elements a sample or i32[samples, ...] with 6 "
                "elements a sample or bool[samples, ...] with 6 elements a sample, as feed images "
                "delivers"));
  EXPECT_FALSE(CheckRequest(**data, {"x", "images", DType::kF32, {4, 7}, 0, ""}).ok());
  ExpectSlicesEqualWhole<int32_t>(**data, "images", {4, 6}, DType::kI32);
  auto real = Filled<float>(**data, "images", {}, TensorSlice::Whole(DType::kF32, {4, 6}));
  auto bytes = Filled<int32_t>(**data, "images", {}, TensorSlice::Whole(DType::kI32, {4, 6}));
  for (size_t i = 0; i < real.size(); ++i)
    EXPECT_EQ(real[i], static_cast<float>(bytes[i]) / 255.0f);
  auto mask = Filled<uint8_t>(**data, "images", {}, TensorSlice::Whole(DType::kBool, {4, 6}));
  for (size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(mask[i], bytes[i] != 0 ? 1 : 0);
}

TEST(IdxFileTest, FilesOfAnotherKindAreNotCalledDamaged) {
  std::string floats = IdxBytes({1, 1, 1}, "abcd");
  floats[2] = 13;
  absl::Status status =
      ReadIdxFile(WriteTemporary("floats.idx", floats), 3, "training images").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected IDX of unsigned bytes with 3 dimensions (training images); found "
                        "IDX of 32-bit floats with 3 dimensions"));
  status = ReadIdxFile(WriteTemporary("flat.idx", IdxBytes({2, 2}, "abcd")), 3, "training images")
               .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("found IDX of unsigned bytes with 2 dimensions"));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("fetch the file again")));
}

TEST(IdxFileTest, EveryTruncationIsDamagePlainAndCompressed) {
  std::string bytes = IdxBytes({2, 2, 3}, "abcdefghijkl");
  for (size_t length = 0; length < bytes.size(); ++length) {
    auto array = ReadIdxFile(WriteTemporary("cut.idx", bytes.substr(0, length)), 3, "test");
    EXPECT_EQ(array.status().code(), absl::StatusCode::kDataLoss) << length;
  }
  std::string path = WriteGzip("whole.idx.gz", bytes);
  ASSERT_TRUE(ReadIdxFile(path, 3, "test").ok());
  std::ifstream in(path, std::ios::binary);
  std::string packed(std::istreambuf_iterator<char>(in), {});
  for (size_t length = 2; length < packed.size(); ++length) {
    auto array = ReadIdxFile(WriteTemporary("cut.idx.gz", packed.substr(0, length)), 3, "test");
    EXPECT_EQ(array.status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(IdxFileTest, RefusesOtherMagicExtraBytesAndImpossibleSizes) {
  EXPECT_FALSE(ReadIdxFile(WriteTemporary("m.idx", IdxBytes({2}, "ab")), 3, "test").ok());
  EXPECT_FALSE(ReadIdxFile(WriteTemporary("l.idx", IdxBytes({2}, "abc")), 1, "test").ok());
  EXPECT_FALSE(
      ReadIdxFile(WriteTemporary("h.idx", IdxBytes({0xffffffffu, 0xffffffffu, 0xffffffffu}, "abc")),
                  3, "test")
          .ok());
  EXPECT_FALSE(
      ReadIdxFile(WriteTemporary("g.idx", IdxBytes({0x3fffffffu}, "abc")), 1, "test").ok());
}

FeedRequest Integers(const std::string& feed, Shape shape, int64_t below) {
  return {feed, feed, DType::kI32, std::move(shape), below, below == 0 ? "" : "a table"};
}

std::set<int32_t> Seen(const Dataset& data, const std::string& feed, const TensorSlice& slice) {
  std::set<int32_t> seen;
  for (int64_t step = 0; step < 200; ++step) {
    for (int32_t value : Filled<int32_t>(data, feed, {DataPart::kTrain, step, 0, 1}, slice))
      seen.insert(value);
  }
  return seen;
}

TEST(SyntheticDatasetTest, SlicesEqualTheWholeAndTargetsFollowTokens) {
  auto data = MakeSyntheticDataset({{Integers("tokens", {4, 6}, 17),
                                     Integers("targets", {4, 6}, 17),
                                     {"images", "images", DType::kF32, {4, 6}, 0, ""}},
                                    0});
  ASSERT_TRUE(data.ok()) << data.status();
  ExpectSlicesEqualWhole<int32_t>(**data, "tokens", {4, 6}, DType::kI32);
  ExpectSlicesEqualWhole<int32_t>(**data, "targets", {4, 6}, DType::kI32);
  ExpectSlicesEqualWhole<float>(**data, "images", {4, 6}, DType::kF32);
  TensorSlice slice = TensorSlice::Whole(DType::kI32, {4, 6});
  auto tokens = Filled<int32_t>(**data, "tokens", {}, slice),
       targets = Filled<int32_t>(**data, "targets", {}, slice);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(targets[i], tokens[i + 1]);
}

TEST(SyntheticDatasetTest, EachFeedIsUniformOverTheRangeThatIsAskedForWhateverItsName) {
  auto data = MakeSyntheticDataset({{Integers("tokens", {4, 6}, 17), Integers("targets", {4}, 3),
                                     Integers("anything", {4, 6}, 5), Integers("free", {4, 6}, 0)},
                                    0});
  ASSERT_TRUE(data.ok()) << data.status();
  const TensorSlice window = TensorSlice::Whole(DType::kI32, {4, 6}),
                    one = TensorSlice::Whole(DType::kI32, {4});
  for (const auto& [feed, slice, below] :
       {std::tuple{"tokens", window, 17}, std::tuple{"targets", one, 3},
        std::tuple{"anything", window, 5}, std::tuple{"free", window, 256}}) {
    const std::set<int32_t> seen = Seen(**data, feed, slice);
    EXPECT_EQ(*seen.begin(), 0) << feed;
    EXPECT_EQ(*seen.rbegin(), below - 1) << feed;
    EXPECT_EQ(static_cast<int>(seen.size()), below) << feed;
  }
}

TEST(SyntheticDatasetTest, InputsThatShareAFeedAgreeOnTheNarrowestRange) {
  auto data = MakeSyntheticDataset({{Integers("ids", {4, 6}, 17), Integers("ids", {4, 6}, 5)}, 0});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(*Seen(**data, "ids", TensorSlice::Whole(DType::kI32, {4, 6})).rbegin(), 4);
  EXPECT_FALSE(MakeSyntheticDataset(
                   {{Integers("ids", {4, 6}, 17), {"x", "ids", DType::kF32, {4, 6}, 0, ""}}, 0})
                   .ok());
}

TEST(SyntheticDatasetTest, AQuarterOfTheIntegersIsTheIgnoredOne) {
  FeedRequest marked = Integers("targets", {400, 6}, 5);
  marked.ignored = -100;
  auto data = MakeSyntheticDataset({{marked, Integers("tokens", {400, 6}, 5)}, 0});
  ASSERT_TRUE(data.ok()) << data.status();
  const TensorSlice slice = TensorSlice::Whole(DType::kI32, {400, 6});
  EXPECT_EQ(Seen(**data, "targets", slice), (std::set<int32_t>{-100, 0, 1, 2, 3, 4}));
  EXPECT_EQ(Seen(**data, "tokens", slice), (std::set<int32_t>{0, 1, 2, 3, 4}));
  const auto values = Filled<int32_t>(**data, "targets", {}, slice);
  const auto ignored = std::count(values.begin(), values.end(), -100);
  EXPECT_NEAR(static_cast<double>(ignored) / static_cast<double>(values.size()), 0.25, 0.03);
  // An input that does not ignore the value gets none.
  data = MakeSyntheticDataset({{marked, Integers("targets", {400, 6}, 5)}, 0});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(*Seen(**data, "targets", slice).begin(), 0);
}

TEST(SyntheticDatasetTest, AMaskShowsTheBeginOfEachSequence) {
  auto data = MakeSyntheticDataset({{{"mask", "mask", DType::kBool, {64, 2, 7}, 0, ""},
                                     {"coin", "coin", DType::kBool, {64}, 0, ""}},
                                    3});
  ASSERT_TRUE(data.ok()) << data.status();
  ExpectSlicesEqualWhole<uint8_t>(**data, "mask", {64, 14}, DType::kBool);
  const auto mask =
      Filled<uint8_t>(**data, "mask", {}, TensorSlice::Whole(DType::kBool, {64, 2, 7}));
  std::set<int64_t> lengths;
  for (size_t row = 0; row < mask.size() / 7; ++row) {
    const auto begin = mask.begin() + static_cast<int64_t>(7 * row), end = begin + 7;
    const auto length = std::count(begin, end, 1);
    EXPECT_EQ(std::find(begin, end, 0) - begin, length) << "row " << row;
    EXPECT_EQ(std::count(begin, end, 0), 7 - length) << "row " << row;
    lengths.insert(length);
  }
  EXPECT_EQ(lengths, (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  const auto coin = Filled<uint8_t>(**data, "coin", {}, TensorSlice::Whole(DType::kBool, {64}));
  EXPECT_NEAR(static_cast<double>(std::count(coin.begin(), coin.end(), 1)), 32, 12);
}

TEST(SyntheticDatasetTest, SaysWhatItDraws) {
  auto data = MakeSyntheticDataset(
      {{Integers("a", {4, 6}, 500), Integers("b", {4}, 0), {"c", "c", DType::kF32, {4, 6}, 0, ""}},
       9});
  EXPECT_EQ((*data)->Describe(),
            "synthetic data, seed 9: a integers uniform below 500; b integers uniform below 256, "
            "since nothing reads them as indices; "
            "c real numbers uniform in [0, 1)");
  EXPECT_FALSE(MakeSyntheticDataset({{{"x", "x", DType::kBF16, {4}, 0, ""}}, 0}).ok());
  EXPECT_FALSE(MakeSyntheticDataset({{{"x", "x", DType::kF32, {}, 0, ""}}, 0}).ok());
}

}  // namespace
}  // namespace weir::store
