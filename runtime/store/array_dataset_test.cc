#include "runtime/store/array_dataset.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/safetensors.h"

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string BytesOf(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& order = "False") {
  const std::string dict = absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order,
                                        ", 'shape': ", shape, ", }\n");
  std::string bytes = "\x93NUMPY";
  bytes += {1, 0, static_cast<char>(dict.size()), 0};
  return bytes + dict + data;
}

std::string Number(uint64_t value, int bytes) {
  return {reinterpret_cast<const char*>(&value), static_cast<size_t>(bytes)};
}

struct Member {
  std::string name, data;
  int method = 0;  // 0: stored
};

// Writes an archive as numpy.savez does. `in_64` moves sizes into the 64-bit parts.
std::string Zip(const std::vector<Member>& members, bool in_64 = false) {
  std::string file, directory;
  for (const Member& member : members) {
    const uint64_t size = member.data.size(), place = file.size();
    const uint64_t plain = in_64 ? 0xffffffff : size;
    const std::string extra =
        in_64 ? Number(1, 2) + Number(24, 2) + Number(size, 8) + Number(size, 8) + Number(place, 8)
              : "";
    const std::string middle = Number(static_cast<uint64_t>(member.method), 2) + Number(0, 8) +
                               Number(plain, 4) + Number(plain, 4) + Number(member.name.size(), 2);
    file += Number(0x04034b50, 4) + Number(20, 2) + Number(0, 2) + middle + Number(0, 2) +
            member.name + member.data;
    directory += Number(0x02014b50, 4) + Number(20, 2) + Number(20, 2) + Number(0, 2) + middle +
                 Number(extra.size(), 2) + Number(0, 2) + Number(0, 2) + Number(0, 2) +
                 Number(0, 4) + Number(in_64 ? 0xffffffff : place, 4) + member.name + extra;
  }
  const uint64_t begin = file.size(), end64 = begin + directory.size();
  file += directory;
  if (in_64) {
    file += Number(0x06064b50, 4) + Number(44, 8) + Number(45, 2) + Number(45, 2) + Number(0, 8) +
            Number(members.size(), 8) + Number(members.size(), 8) + Number(directory.size(), 8) +
            Number(begin, 8);
    file += Number(0x07064b50, 4) + Number(0, 4) + Number(end64, 8) + Number(1, 4);
  }
  return file + Number(0x06054b50, 4) + Number(0, 4) + Number(members.size(), 2) +
         Number(members.size(), 2) + Number(directory.size(), 4) +
         Number(in_64 ? 0xffffffff : begin, 4) + Number(0, 2);
}

std::string Tokens(int samples) {
  std::vector<int64_t> tokens;
  for (int i = 0; i < samples * 2; ++i) tokens.push_back(i);
  return Npy("<i8", absl::StrCat("(", samples, ", 2)"), BytesOf(tokens));
}

std::string Labels(int samples) {
  std::vector<int32_t> labels;
  for (int i = 0; i < samples; ++i) labels.push_back(100 + i);
  return Npy("<i4", absl::StrCat("(", samples, ",)"), BytesOf(labels));
}

ArrayDataOptions Options(const std::string& path) {
  ArrayDataOptions options;
  options.paths = {path};
  options.wanted = {"tokens", "label"};
  return options;
}

FeedRequest Request(const std::string& feed, DType dtype, Shape shape, int64_t below = 0) {
  FeedRequest request;
  request.input = request.feed = feed;
  request.dtype = dtype;
  request.shape = std::move(shape);
  request.below = below;
  request.reader = "an index";
  return request;
}

template <class T>
std::vector<T> Filled(const Dataset& dataset, const std::string& feed, const TensorSlice& slice,
                      BatchPosition position = {}) {
  std::vector<T> out(static_cast<size_t>(slice.num_elements()));
  const absl::Status status = dataset.Fill(feed, position, slice, out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::string Refusal(const absl::Status& status) { return std::string(status.message()); }

TEST(StoredArray, FoldersArchivesAndSafetensorsHoldNamedArrays) {
  const std::string folder =
      std::filesystem::path(WriteTemporary("arrays/tokens.npy", Tokens(3))).parent_path();
  WriteTemporary("arrays/label.npy", Labels(3));
  const auto writer = SafetensorsWriter::Create(
      TemporaryPath("a.safetensors"),
      {{"tokens", DType::kI32, {3, 2}}, {"label", DType::kI32, {3}}, {"lone", DType::kF32, {}}},
      {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> tokens = {0, 1, 2, 3, 4, 5}, labels = {100, 101, 102};
    const std::string& name = (*writer)->entries()[i].name;
    ASSERT_TRUE((*writer)->Write(i, name == "label" ? labels.data() : tokens.data()).ok());
  }
  ASSERT_TRUE((*writer)->Commit().ok());
  const std::vector<Member> members = {{"tokens.npy", Tokens(3)}, {"label.npy", Labels(3)}};
  for (const std::string& path :
       {folder, WriteTemporary("a.npz", Zip(members)), WriteTemporary("b.npz", Zip(members, true)),
        TemporaryPath("a.safetensors")}) {
    SCOPED_TRACE(path);
    const auto arrays = ArraysIn(path, "arrays");
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    ASSERT_EQ(arrays->size(), 2u);
    EXPECT_EQ(arrays->at("tokens").shape(), Shape({3, 2}));
    std::vector<int32_t> tokens(6), labels(3);
    ASSERT_TRUE(arrays->at("tokens").Read(0, 6, DType::kI32, {}, tokens.data()).ok());
    ASSERT_TRUE(arrays->at("label").Read(0, 3, DType::kI32, {}, labels.data()).ok());
    EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(labels, ElementsAre(100, 101, 102));
  }
}

TEST(StoredArray, FilesThatHoldNoArrayAreRefused) {
  const std::string whole = Zip({{"x.npy", Labels(2)}});
  std::string moved = whole;  // the directory says that the member begins beyond the end
  const size_t entry = whole.find("PK\1\2");
  std::memset(moved.data() + entry + 42, 0x7f, 4);
  const struct {
    std::string path, found;
  } cases[] = {
      {WriteTemporary("deflated.npz", Zip({{"x.npy", Labels(2), 8}})), "savez_compressed"},
      {WriteTemporary("cut.npz", whole.substr(0, whole.size() - 9)), "no end of the list"},
      {WriteTemporary("moved.npz", moved), "beyond"},
      {WriteTemporary("empty.npz", Zip({})), "found none"},
      {WriteTemporary("text.npz", "some text that is longer than an archive"), "another file"},
      {WriteTemporary("one.npy", Labels(2)), "array { name: \"one\""},
      {WriteTemporary("columns.npz",
                      Zip({{"x.npy", Npy("<i4", "(2, 2)", "16 bytes of data", "True")}})),
       "column-major"},
      {WriteTemporary("order.npz", Zip({{"x.npy", Npy("<i4", "(1,)", "4444", "1")}})),
       "fortran_order True or False in the header of NumPy; found 1"},
      {WriteTemporary("big.npz", Zip({{"x.npy", Npy(">i4", "(1,)", "4444")}})), "little-endian"},
      {WriteTemporary("lone.npz", Zip({{"x.npy", Npy("<i4", "()", "4444")}})), "single number"},
      {WriteTemporary("short.npz", Zip({{"x.npy", Npy("<i4", "(2,)", "4444")}})), "2 elements"},
      {WriteTemporary("huge.npz", Zip({{"x.npy", Npy("<i4", "(9223372036854775807, 9)", "")}})),
       "a shape"},
      {WriteTemporary("other.npz", Zip({{"x.npy", "no array"}})), "other bytes"},
  };
  for (const auto& c : cases) {
    const auto arrays = ArraysIn(c.path, "arrays");
    ASSERT_FALSE(arrays.ok()) << c.path;
    EXPECT_THAT(Refusal(arrays.status()), AllOf(HasSubstr("W0790"), HasSubstr(c.found)));
  }
}

TEST(StoredArray, AChangedFileIsReadOrRefused) {
  const std::string whole =
      Zip({{"tokens.npy", Tokens(5)}, {"label.npy", Labels(5)}}, /*in_64=*/true);
  int read = 0;
  for (uint64_t trial = 0; trial < 500; ++trial) {
    std::string changed = whole;
    for (int change = 0; change < 1 + static_cast<int>(trial % 3); ++change) {
      const auto words = RandomBits(trial, static_cast<uint64_t>(change));
      changed[words[0] % changed.size()] = static_cast<char>(words[1] % 4 == 0 ? -1 : words[2]);
    }
    const auto arrays = ArraysIn(WriteTemporary("changed.npz", changed), "arrays");
    if (!arrays.ok()) continue;
    for (const auto& [name, array] : *arrays) {
      const int64_t size = NumElements(array.shape());
      ASSERT_LE(size * WidthOf(array.type()), static_cast<int64_t>(changed.size()));
      std::vector<double> numbers(static_cast<size_t>(size));
      ASSERT_TRUE(array.ReadNumbers(0, size, numbers.data()).ok());
    }
    ++read;
  }
  EXPECT_GT(read, 50);
  EXPECT_LT(read, 450);
}

TEST(ArrayDataset, AnEpochHasEachSampleOnceAndRowsBelongTogether) {
  const std::string path =
      WriteTemporary("epoch.npz", Zip({{"tokens.npy", Tokens(10)}, {"label.npy", Labels(10)}}));
  ArrayDataOptions options = Options(path);
  options.held_out = 0.2;
  options.batch = 2;
  const auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("8 samples to train on, 2 held out"));
  std::vector<std::vector<int32_t>> epochs(2);
  for (int64_t step = 0; step < 8; ++step) {
    const BatchPosition position{DataPart::kTrain, step};
    const auto labels =
        Filled<int32_t>(**dataset, "label", TensorSlice::Whole(DType::kI32, {2}), position);
    const auto tokens =
        Filled<int32_t>(**dataset, "tokens", TensorSlice::Whole(DType::kI32, {2, 2}), position);
    for (size_t row = 0; row < 2; ++row) {
      epochs[static_cast<size_t>(step / 4)].push_back(labels[row]);
      EXPECT_EQ(tokens[2 * row], 2 * (labels[row] - 100));
    }
    // Two micro-batches of one sample are the same samples.
    const auto second = Filled<int32_t>(**dataset, "label", TensorSlice::Whole(DType::kI32, {1}),
                                        {DataPart::kTrain, step, 1, 2});
    EXPECT_EQ(second[0], labels[1]);
  }
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set<int32_t>(epoch.begin(), epoch.end()).size(), 8u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_EQ((*dataset)->num_held_out_batches(), 1);
  EXPECT_THAT(Filled<int32_t>(**dataset, "label", TensorSlice::Whole(DType::kI32, {2}),
                              {DataPart::kHeldOut}),
              ElementsAre(108, 109));
}

TEST(ArrayDataset, AShardIsThePartOfTheWhole) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 2 * 3 * 4; ++i) pixels.push_back(static_cast<uint8_t>(i));
  ArrayDataOptions options;
  options.arrays = {
      {"image", {WriteTemporary("image.npy", Npy("|u1", "(2, 3, 4)", BytesOf(pixels)))}, {}}};
  options.scales["image"] = {0.5, -1};
  options.wanted = {"image"};
  options.batch = 2;
  const auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto whole = Filled<float>(**dataset, "image", TensorSlice::Whole(DType::kF32, {2, 3, 4}));
  const auto part =
      Filled<float>(**dataset, "image", TensorSlice{DType::kF32, {1, 2, 2}, {1, 1, 2}, {2, 3, 4}});
  EXPECT_THAT(part, ElementsAre(whole[18], whole[19], whole[22], whole[23]));
  EXPECT_EQ(whole[1] - whole[0], 0.5f);
  EXPECT_EQ(*std::min_element(whole.begin(), whole.end()), -1.0f);
}

TEST(ArrayDataset, SeveralFilesFollowOneAnotherOrHaveShares) {
  ArrayDataOptions options;
  options.arrays = {{"label",
                     {WriteTemporary("l1.npy", Labels(3)), WriteTemporary("l2.npy", Labels(1))},
                     {WriteTemporary("l3.npy", Labels(2))}}};
  options.wanted = {"label"};
  options.batch = 2;
  auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::multiset<int32_t> seen;
  const TensorSlice epoch = TensorSlice::Whole(DType::kI32, {4});
  for (int32_t label : Filled<int32_t>(**dataset, "label", epoch)) seen.insert(label);
  EXPECT_THAT(seen, ElementsAre(100, 100, 101, 102));
  EXPECT_EQ((*dataset)->num_held_out_batches(), 1);
  options.weights = {1, 3};
  dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto block = Filled<int32_t>(**dataset, "label", TensorSlice::Whole(DType::kI32, {4096}));
  // Label 101 is in the first file only, once in 3 samples.
  EXPECT_NEAR(static_cast<double>(std::count(block.begin(), block.end(), 101)), 1024 / 3.0, 1);
}

TEST(ArrayDataset, TypesAndShapesAreComparedWithTheInput) {
  ArrayDataOptions options;
  options.arrays = {
      {"image", {WriteTemporary("i.npy", Npy("|u1", "(2, 4)", "12345678"))}, {}},
      {"real", {WriteTemporary("r.npy", Npy("<f8", "(2,)", std::string(16, '\0')))}, {}},
      {"row", {WriteTemporary("w.npy", Npy("<i4", "(2,)", std::string(8, '\0')))}, {}}};
  options.wanted = {"image", "real", "row"};
  const auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const struct {
    FeedRequest request;
    std::string found;
  } refused[] = {
      {Request("image", DType::kF32, {2, 4}), "scale { name: \"image\" by: 0.00392156862745098 }"},
      {Request("image", DType::kI32, {2, 2, 2}), "save the array with .reshape(-1, 2, 2)"},
      {Request("image", DType::kI32, {2, 5}),
       "expected i32[samples, 5], by the type of the input, with any number of samples; found "
       "u8[2, "
       "4]"},
      {Request("real", DType::kI32, {2}), "astype(\"int32\")"},
      {Request("real", DType::kBool, {2}), "astype(\"bool\")"},
      {Request("row", DType::kI32, {1, 8}), "data { tokens { path"},
      {Request("row", DType::kI32, {}), "begin with a dimension of samples"},
  };
  for (const auto& c : refused) {
    EXPECT_THAT(Refusal(CheckRequest(**dataset, c.request)),
                AllOf(HasSubstr("W0792"), HasSubstr(c.found)));
  }
  EXPECT_TRUE(CheckRequest(**dataset, Request("real", DType::kF32, {2})).ok());
  EXPECT_THAT(Refusal(CheckRequest(**dataset, Request("imag", DType::kI32, {2, 4}))),
              AllOf(HasSubstr("W0055"), HasSubstr("from: \"image\"")));
}

TEST(ArrayDataset, ValuesOutOfRangeAreNamedWithTheirSample) {
  const std::vector<int64_t> targets = {0, 1, -100, 7, 1, 0};
  const std::vector<int64_t> wide = {0, int64_t{1} << 31};
  ArrayDataOptions options;
  options.arrays = {
      {"targets", {WriteTemporary("t.npy", Npy("<i8", "(2, 3)", BytesOf(targets)))}, {}},
      {"mask", {WriteTemporary("m.npy", Npy("<i8", "(2, 3)", BytesOf(targets)))}, {}},
      {"wide", {WriteTemporary("wide.npy", Npy("<i8", "(2,)", BytesOf(wide)))}, {}}};
  options.wanted = {"targets"};
  const auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  FeedRequest request = Request("targets", DType::kI32, {2, 3}, 4);
  EXPECT_THAT(Refusal(CheckRequest(**dataset, request)),
              AllOf(HasSubstr("W0793"), HasSubstr("sample 0, element 2"), HasSubstr("found -100"),
                    HasSubstr("ignore_index: -100")));
  request.ignored = -100;
  EXPECT_THAT(Refusal(CheckRequest(**dataset, request)),
              AllOf(HasSubstr("sample 1, element 0"), HasSubstr("found 7"),
                    HasSubstr("Try: correct the data, or give that dimension a larger size")));
  request.below = 8;
  EXPECT_TRUE(CheckRequest(**dataset, request).ok());
  EXPECT_THAT(Refusal(CheckRequest(**dataset, Request("mask", DType::kBool, {2, 3}))),
              AllOf(HasSubstr("sample 0, element 2"), HasSubstr("0 or 1")));
  EXPECT_THAT(Refusal(CheckRequest(**dataset, Request("wide", DType::kI32, {2}))),
              AllOf(HasSubstr("sample 1"), HasSubstr("found 2147483648")));
}

TEST(ArrayDataset, FiniteNumbersStayFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> large = {kInfinity, 3e38, -1e300};
  const std::vector<float> scaled = {1, 2e38F, 3};
  ArrayDataOptions options;
  options.arrays = {{"large", {WriteTemporary("l.npy", Npy("<f8", "(3,)", BytesOf(large)))}, {}},
                    {"scaled", {WriteTemporary("s.npy", Npy("<f4", "(3,)", BytesOf(scaled)))}, {}}};
  options.wanted = {"large", "scaled"};
  options.scales["scaled"].by = 2;
  const auto dataset = OpenArrayDataset(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Refusal(CheckRequest(**dataset, Request("large", DType::kF32, {3}))),
              AllOf(HasSubstr("W0793"), HasSubstr("sample 2"), HasSubstr("found -1e+300")));
  EXPECT_THAT(Refusal(CheckRequest(**dataset, Request("scaled", DType::kF32, {3}))),
              AllOf(HasSubstr("W0793"), HasSubstr("sample 1"), HasSubstr("with its scale")));
}

TEST(ArrayDataset, ContradictionsAreRefused) {
  const std::string three = WriteTemporary("three.npy", Labels(3));
  const std::string two = WriteTemporary("two.npy", Labels(2));
  const std::string lacks = WriteTemporary("lacks.npz", Zip({{"tokens.npy", Tokens(3)}}));
  const std::string both =
      WriteTemporary("both.npz", Zip({{"tokens.npy", Tokens(3)}, {"label.npy", Labels(3)}}));
  const auto changed = [&](auto change) {
    ArrayDataOptions options;
    options.arrays = {{"tokens", {three}, {}}, {"label", {three}, {}}};
    options.wanted = {"tokens", "label"};
    change(&options);
    const auto dataset = OpenArrayDataset(options);
    return dataset.ok() ? "accepted" : Refusal(dataset.status());
  };
  using O = ArrayDataOptions;
  EXPECT_EQ(changed([](O*) {}), "accepted");
  EXPECT_THAT(changed([&](O* o) { o->arrays[1].paths[0] = two; }),
              AllOf(HasSubstr("W0794"), HasSubstr("3 samples"), HasSubstr("found 2")));
  EXPECT_THAT(changed([&](O* o) { o->arrays[1].paths.push_back(two); }), HasSubstr("W0791"));
  EXPECT_THAT(changed([&](O* o) { o->arrays[1].name = "tokens"; }), HasSubstr("two entries"));
  EXPECT_THAT(changed([&](O* o) { o->paths = {both}; }), HasSubstr("found both"));
  EXPECT_THAT(changed([&](O* o) { o->arrays.clear(); }), HasSubstr("found neither"));
  EXPECT_THAT(changed([&](O* o) { o->scales["labl"] = {}; }), HasSubstr("name: \"label\""));
  EXPECT_THAT(changed([&](O* o) { o->scales["label"].by = 0; }), HasSubstr("W0791"));
  EXPECT_THAT(changed([&](O* o) { o->held_out = 1; }), HasSubstr("W0052"));
  EXPECT_THAT(changed([&](O* o) { o->weights = {1, 2}; }), HasSubstr("W0052"));
  EXPECT_THAT(changed([&](O* o) { o->batch = 4; }), HasSubstr("W0794"));
  EXPECT_THAT(changed([&](O* o) {
                o->batch = 2;
                o->held_out = 0.3;
              }),
              AllOf(HasSubstr("held-out samples"), HasSubstr("set data.arrays.held_out to")));
  EXPECT_THAT(changed([&](O* o) {
                o->arrays.clear();
                o->paths = {both, lacks};
              }),
              AllOf(HasSubstr("W0791"), HasSubstr("\"label\"")));
}

}  // namespace
}  // namespace weir::store
