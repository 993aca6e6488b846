#include "runtime/store/token_dataset.h"

#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class T>
std::string BytesOf(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::vector<uint16_t> Count(int begin, int n) {
  std::vector<uint16_t> numbers;
  for (int i = 0; i < n; ++i) numbers.push_back(static_cast<uint16_t>(begin + i));
  return numbers;
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& data) {
  const std::string dict =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }\n");
  std::string bytes = "\x93NUMPY";
  bytes += {1, 0, static_cast<char>(dict.size()), 0};
  return bytes + dict + data;
}

std::string Llmc(int32_t magic, int32_t version, int32_t count, const std::string& data) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return BytesOf(header) + data;
}

std::vector<int32_t> TokensOf(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
  EXPECT_TRUE(file.ReadAt(0, file.size(), tokens.data()).ok());
  return tokens;
}

TEST(TokenFile, EveryFormGivesItsTokens) {
  const std::vector<int32_t> expected = {7, 300, 65535};
  const std::vector<uint16_t> u16 = {7, 300, 65535};
  const std::vector<uint32_t> u32 = {7, 300, 65535};
  const std::vector<int32_t> i32 = {7, 300, 65535};
  const std::vector<int64_t> i64 = {7, 300, 65535};
  const auto index = [](char code) {
    std::string bytes("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17);
    bytes.push_back(code);
    return bytes;
  };
  WriteTemporary("m16.idx", index(8));
  WriteTemporary("m32.idx", index(4));
  WriteTemporary("m64.idx", index(5));
  const struct {
    std::string path;
    TokenType type;
    std::string form;
  } cases[] = {
      {WriteTemporary("raw16", BytesOf(u16)), TokenType::kU16, "u16"},
      {WriteTemporary("raw32", BytesOf(u32)), TokenType::kU32, "u32"},
      {WriteTemporary("a16.npy", Npy("<u2", "(3,)", BytesOf(u16))), TokenType::kFound, "npy u16"},
      {WriteTemporary("a32.npy", Npy("<u4", "(3,)", BytesOf(u32))), TokenType::kFound, "npy u32"},
      {WriteTemporary("b32.npy", Npy("<i4", "(3,)", BytesOf(i32))), TokenType::kFound, "npy i32"},
      {WriteTemporary("b64.npy", Npy("<i8", "(3,)", BytesOf(i64))), TokenType::kFound, "npy i64"},
      // Bytes behind the tokens that the header counts are no tokens.
      {WriteTemporary("l16", Llmc(20240520, 1, 3, BytesOf(u16) + "more")), TokenType::kFound,
       "llm.c u16"},
      {WriteTemporary("l32", Llmc(20240801, 7, 3, BytesOf(u32))), TokenType::kFound, "llm.c u32"},
      {WriteTemporary("m16.bin", BytesOf(u16)), TokenType::kFound, "Megatron u16"},
      {WriteTemporary("m32.bin", BytesOf(i32)), TokenType::kFound, "Megatron i32"},
      {WriteTemporary("m64.bin", BytesOf(i64)), TokenType::kFound, "Megatron i64"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.path);
    const auto file = TokenFile::Open(test.path, "tokens", test.type);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->form(), test.form);
    EXPECT_EQ(TokensOf(**file), expected);
  }
}

TEST(TokenFile, RefusesWhatIsNoFileOfTokens) {
  const std::string three = BytesOf(Count(0, 3));
  WriteTemporary("other.idx", "something else than an index");
  WriteTemporary("future.idx", std::string("MMIDIDX\0\0\2\0\0\0\0\0\0\0\x8", 18));
  WriteTemporary("real.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\6", 18));
  const struct {
    std::string path;
    TokenType type;
    const char* error;
  } cases[] = {
      {WriteTemporary("no_header", three), TokenType::kFound, "type: U16"},
      {WriteTemporary("odd", "abc"), TokenType::kU16, "a whole number of tokens of 2 bytes"},
      {WriteTemporary("v2", Llmc(20240520, 2, 3, three)), TokenType::kFound, "version 2"},
      {WriteTemporary("cut", Llmc(20240520, 1, 4, three)), TokenType::kFound, "4 tokens, as the"},
      {WriteTemporary("minus", Llmc(20240520, 1, -5, "x")), TokenType::kFound,
       "a number of tokens in the header of llm.c; found -5"},
      {WriteTemporary("future.npy", std::string("\x93NUMPY\4\0\1\0{", 11)), TokenType::kFound,
       "version 4.0"},
      {WriteTemporary("future.bin", three), TokenType::kFound, "found version 2"},
      {WriteTemporary("wide.npy", Npy("<u2", "(3,)", three)), TokenType::kU32, "leave `type` out"},
      {WriteTemporary("flat.npy", Npy("<u2", "(1, 3)", three)), TokenType::kFound, "one dimension"},
      {WriteTemporary("real.npy", Npy("<f4", "(3,)", three)), TokenType::kFound, "'<f4'"},
      {WriteTemporary("none.npy", std::string("\x93NUMPY\1", 7)), TokenType::kFound,
       "whole header"},
      {WriteTemporary("head.npy", std::string("\x93NUMPY\1\0\xff\xff{", 11)), TokenType::kFound,
       "a header of 65535 bytes"},
      {WriteTemporary("other.bin", three), TokenType::kFound, "MMIDIDX"},
      {WriteTemporary("real.bin", three), TokenType::kFound, "type code 6"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.path);
    const auto file = TokenFile::Open(test.path, "tokens", test.type);
    ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << file.status();
    EXPECT_THAT(std::string(file.status().message()),
                AllOf(HasSubstr("W0909"), HasSubstr(test.error)));
  }
}

TEST(TokenFile, ANumberThatIsNoTokenIsNamedWhenItIsRead) {
  const auto file =
      TokenFile::Open(WriteTemporary("large", BytesOf(std::vector<uint32_t>{1, 2, 0x80000000u})),
                      "tokens", TokenType::kU32);
  ASSERT_TRUE(file.ok());
  std::vector<int32_t> tokens(3);
  EXPECT_TRUE((*file)->ReadAt(0, 2, tokens.data()).ok());
  EXPECT_THAT(std::string((*file)->ReadAt(0, 3, tokens.data()).message()),
              AllOf(HasSubstr("W0051"), HasSubstr("large, token 2")));
}

constexpr int64_t kWindow = 5;

TokenDataOptions Options(std::vector<std::string> paths) {
  TokenDataOptions options;
  options.field = "data.tokens";
  options.noun = "token";
  options.paths = std::move(paths);
  options.type = TokenType::kU16;
  options.order = WindowOrder::kEpochs;
  options.batch = 2;
  options.sequence = kWindow;
  options.seed = 3;
  return options;
}

std::vector<int32_t> Window(const Dataset& data, DataPart part, int64_t sample,
                            const std::string& feed = "tokens") {
  std::vector<int32_t> window(kWindow);
  const absl::Status status = data.Fill(
      feed, {part, sample, 0, 1}, TensorSlice::Whole(DType::kI32, {1, kWindow}), window.data());
  EXPECT_TRUE(status.ok()) << status;
  return window;
}

TEST(TokenDataset, AnEpochHasEachWindowOfEachFileOnceInAnOrderOfItsOwn) {
  // 41 tokens make 8 windows, 23 make 4: the last token of each is a target alone.
  auto data = OpenTokenDataset(Options(
      {WriteTemporary("a", BytesOf(Count(0, 41))), WriteTemporary("b", BytesOf(Count(1000, 23)))}));
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<std::vector<int32_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> starts;
    for (int64_t i = 0; i < 12; ++i) {
      const auto tokens = Window(**data, DataPart::kTrain, epoch * 12 + i),
                 targets = Window(**data, DataPart::kTrain, epoch * 12 + i, "targets");
      for (int64_t t = 0; t < kWindow; ++t) {
        EXPECT_EQ(tokens[t], tokens[0] + t);
        EXPECT_EQ(targets[t], tokens[t] + 1);
      }
      starts.push_back(tokens[0]);
    }
    EXPECT_EQ(std::set<int32_t>(starts.begin(), starts.end()),
              (std::set<int32_t>{0, 5, 10, 15, 20, 25, 30, 35, 1000, 1005, 1010, 1015}));
    orders.push_back(starts);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(TokenDataset, HeldOutFilesAreEvaluatedAfterTheHeldOutEnds) {
  TokenDataOptions options = Options({WriteTemporary("train", BytesOf(Count(0, 41)))});
  options.held_out = 0.3;  // 12 tokens, which are 2 windows
  options.held_out_paths = {WriteTemporary("test", BytesOf(Count(1000, 13)))};
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->num_held_out_batches(), 2);
  EXPECT_EQ(Window(**data, DataPart::kHeldOut, 0)[0], 29);
  EXPECT_EQ(Window(**data, DataPart::kHeldOut, 2)[0], 1000);
  EXPECT_EQ(Window(**data, DataPart::kHeldOut, 3)[0], 1005);
  for (int64_t sample = 0; sample < 40; ++sample)
    EXPECT_LT(Window(**data, DataPart::kTrain, sample)[0], 29);
  options.held_out = 0;
  options.held_out_paths = {WriteTemporary("short", BytesOf(Count(0, 7)))};
  EXPECT_THAT(std::string(OpenTokenDataset(options).status().message()),
              AllOf(HasSubstr("W0054"), HasSubstr("longer files in data.tokens.held_out_path")));
}

TEST(TokenDataset, WeightsDealSamplesAndEachFileHasEpochsOfItsOwn) {
  TokenDataOptions options = Options(
      {WriteTemporary("c", BytesOf(Count(0, 41))), WriteTemporary("d", BytesOf(Count(1000, 23)))});
  options.weights = {3, 1};
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  std::map<int32_t, int> seen;
  for (int64_t sample = 0; sample < 2 * 4096; ++sample)
    ++seen[Window(**data, DataPart::kTrain, sample)[0]];
  // 6,144 samples of 8 windows, and 2,048 of 4.
  ASSERT_EQ(seen.size(), 12u);
  for (const auto& [start, times] : seen) EXPECT_EQ(times, start < 1000 ? 768 : 512) << start;
}

TEST(TokenDataset, EveryFileGetsItsShareHoweverManyAndHeavyTheyAre) {
  // A share of 1.5 samples of a block, and one of 2.5.
  std::vector<std::string> paths;
  TokenDataOptions options = Options({});
  for (int i = 0; i < 2048; ++i) {
    paths.push_back(WriteTemporary(absl::StrCat("many", i), BytesOf(Count(i * 10, 6))));
    options.weights.push_back(i < 1024 ? 3e300 : 5e300);
  }
  options.paths = paths;
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  std::map<int32_t, int> seen;
  for (int64_t sample = 0; sample < 4096; ++sample)
    ++seen[Window(**data, DataPart::kTrain, sample)[0]];
  ASSERT_EQ(seen.size(), 2048u);
  for (const auto& [start, times] : seen) {
    EXPECT_GE(times, start < 10240 ? 1 : 2) << start;
    EXPECT_LE(times, start < 10240 ? 2 : 3) << start;
  }
}

TEST(TokenDataset, HeldOutWindowsFollowFileByFileAndAreNeverTrainedOn) {
  TokenDataOptions options = Options(
      {WriteTemporary("e", BytesOf(Count(0, 100))), WriteTemporary("f", BytesOf(Count(1000, 60)))});
  options.held_out = 0.2;
  auto data = OpenTokenDataset(options);
  ASSERT_TRUE(data.ok()) << data.status();
  // 20 and 12 tokens are held out: 3 and 2 windows, two batches of two.
  EXPECT_EQ((*data)->num_held_out_batches(), 2);
  std::vector<int32_t> starts;
  for (int64_t i = 0; i < 5; ++i) starts.push_back(Window(**data, DataPart::kHeldOut, i)[0]);
  EXPECT_THAT(starts, ::testing::ElementsAre(80, 85, 90, 1048, 1053));
  for (int64_t i = 0; i < 100; ++i) {
    const int32_t last = Window(**data, DataPart::kTrain, i, "targets").back();
    EXPECT_TRUE(last < 80 || (last >= 1000 && last < 1048)) << last;
  }
  std::vector<int32_t> out(kWindow);
  EXPECT_FALSE((*data)
                   ->Fill("tokens", {DataPart::kHeldOut, 5, 0, 1},
                          TensorSlice::Whole(DType::kI32, {1, kWindow}), out.data())
                   .ok());
}

TEST(TokenDataset, RefusesOptionsThatCannotBe) {
  const std::string path = WriteTemporary("g", BytesOf(Count(0, 41)));
  const auto error = [](const TokenDataOptions& options) {
    return std::string(OpenTokenDataset(options).status().message());
  };
  TokenDataOptions options = Options({});
  EXPECT_THAT(error(options), AllOf(HasSubstr("W0052"), HasSubstr("data.tokens.path")));
  options = Options({path, path});
  options.weights = {1};
  EXPECT_THAT(error(options), HasSubstr("as many weights as paths, 2, or none"));
  options.weights = {1, 0};
  EXPECT_THAT(error(options), HasSubstr("weights above 0"));
  options = Options({path, WriteTemporary("h", BytesOf(Count(0, 5)))});
  EXPECT_THAT(error(options), AllOf(HasSubstr("W0053"), HasSubstr("5 of the file's 5 tokens")));
  options = Options({path});
  options.held_out = 0.2;
  EXPECT_THAT(error(options), AllOf(HasSubstr("W0054"), HasSubstr("8 tokens held out, 1 windows"),
                                    HasSubstr("Try: set data.tokens.held_out (`--held-out`")));
}

}  // namespace
}  // namespace weir::store
