#include "runtime/store/safetensors.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/weight_index.h"

namespace weir::store {
namespace {

using ::testing::HasSubstr;

std::string FileBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Writes a file with `header` and `data_bytes` data bytes 0, 1, 2, …
std::string FileWith(const std::string& header, int64_t data_bytes) {
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  bytes += header;
  for (int64_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

// Writes x f32[3, 4] = 0 .. 11 and ids i32[2] = 7, 8.
std::string WriteSample(const std::string& name) {
  std::string path = TemporaryPath(name);
  auto writer = SafetensorsWriter::Create(
      path, {{"x", DType::kF32, {3, 4}}, {"ids", DType::kI32, {2}}}, {{"made_by", "test"}});
  EXPECT_TRUE(writer.ok()) << writer.status();
  std::vector<float> x(12);
  std::iota(x.begin(), x.end(), 0.0f);
  std::vector<int32_t> ids = {7, 8};
  for (size_t i = 0; i < (*writer)->entries().size(); ++i) {
    bool is_x = (*writer)->entries()[i].name == "x";
    EXPECT_TRUE((*writer)->Write(i, is_x ? static_cast<const void*>(x.data()) : ids.data()).ok());
  }
  EXPECT_TRUE((*writer)->Commit().ok());
  return path;
}

TEST(SafetensorsTest, ReadsBackWhatItWroteWholeAndInSlices) {
  auto reader = SafetensorsReader::Open(WriteSample("sample.safetensors"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->metadata().at("made_by"), "test");
  EXPECT_EQ((*reader)->tensors().at("x").shape, (Shape{3, 4}));
  std::vector<float> part(4);
  TensorSlice slice{DType::kF32, {2, 2}, {1, 2}, {3, 4}};
  ASSERT_TRUE((*reader)->Read("x", slice, part.data()).ok());
  EXPECT_THAT(part, ::testing::ElementsAre(6, 7, 10, 11));
  std::vector<int32_t> ids(2);
  ASSERT_TRUE((*reader)->Read("ids", TensorSlice::Whole(DType::kI32, {2}), ids.data()).ok());
  EXPECT_THAT(ids, ::testing::ElementsAre(7, 8));
}

TEST(SafetensorsTest, ATensorMayBeReadInPlaceOfAnother) {
  auto reader = SafetensorsReader::Open(WriteSample("in_place.safetensors"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  (*reader)->ReadInPlaceOf("x", "ids");
  EXPECT_EQ((*reader)->tensors().at("x").shape, (Shape{2}));
  std::vector<int32_t> ids(2);
  ASSERT_TRUE((*reader)->Read("x", TensorSlice::Whole(DType::kI32, {2}), ids.data()).ok());
  EXPECT_THAT(ids, ::testing::ElementsAre(7, 8));
  const auto checked = (*reader)->CheckSums();
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(*checked, SafetensorsReader::Checked::kSound);
}

TEST(SafetensorsTest, EverySliceOfATensorHasTheElementsOfTheWhole) {
  auto reader = SafetensorsReader::Open(WriteSample("slices.safetensors"));
  ASSERT_TRUE(reader.ok());
  for (int64_t r0 = 0; r0 <= 3; ++r0)
    for (int64_t r1 = r0; r1 <= 3; ++r1)
      for (int64_t c0 = 0; c0 <= 4; ++c0)
        for (int64_t c1 = c0; c1 <= 4; ++c1) {
          TensorSlice slice{DType::kF32, {r1 - r0, c1 - c0}, {r0, c0}, {3, 4}};
          std::vector<float> part(static_cast<size_t>(slice.num_elements()) + 1, -1.0f);
          ASSERT_TRUE((*reader)->Read("x", slice, part.data()).ok());
          size_t i = 0;
          for (int64_t r = r0; r < r1; ++r)
            for (int64_t c = c0; c < c1; ++c)
              EXPECT_EQ(part[i++], static_cast<float>(r * 4 + c)) << ToText(slice);
          EXPECT_EQ(part[i], -1.0f) << "wrote past the slice " << ToText(slice);
        }
}

TEST(SafetensorsTest, ConvertsBetweenRealsOnReading) {
  // The data are F16 1.0, -2.0, smallest subnormal, infinity; then BF16 1.5.
  std::string header = R"({"h":{"dtype":"F16","shape":[4],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
  std::string bytes =
      FileWith(header, 0) + std::string("\x00\x3c\x00\xc0\x01\x00\x00\x7c\xc0\x3f", 10);
  auto reader = SafetensorsReader::Open(WriteTemporary("reals.safetensors", bytes));
  ASSERT_TRUE(reader.ok()) << reader.status();
  float h[4], b[1];
  ASSERT_TRUE((*reader)->Read("h", TensorSlice::Whole(DType::kF32, {4}), h).ok());
  EXPECT_EQ(h[0], 1.0f);
  EXPECT_EQ(h[1], -2.0f);
  EXPECT_EQ(h[2], 0x1p-24f);
  EXPECT_TRUE(std::isinf(h[3]));
  ASSERT_TRUE((*reader)->Read("b", TensorSlice::Whole(DType::kF32, {1}), b).ok());
  EXPECT_EQ(b[0], 1.5f);
  BFloat16 narrow[4];
  ASSERT_TRUE((*reader)->Read("h", TensorSlice::Whole(DType::kBF16, {4}), narrow).ok());
  EXPECT_EQ(ToFloat(narrow[1]), -2.0f);
  Float16 half[4], of_bf16[1];
  ASSERT_TRUE((*reader)->Read("h", TensorSlice::Whole(DType::kF16, {4}), half).ok());
  EXPECT_EQ(half[2].bits, 1);
  ASSERT_TRUE((*reader)->Read("b", TensorSlice::Whole(DType::kF16, {1}), of_bf16).ok());
  EXPECT_EQ(ToFloat(of_bf16[0]), 1.5f);
}

TEST(SafetensorsTest, NamesTheNearestTensorAndTheShapesThatDiffer) {
  auto reader = SafetensorsReader::Open(WriteSample("errors.safetensors"));
  ASSERT_TRUE(reader.ok());
  float out[16];
  absl::Status missing = (*reader)->Read("idz", TensorSlice::Whole(DType::kI32, {2}), out);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("nearest name is ids"));
  absl::Status shape = (*reader)->Read("x", TensorSlice::Whole(DType::kF32, {4, 3}), out);
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(shape.message()), HasSubstr("expected shape [4, 3]; found shape [3, 4]"));
  EXPECT_FALSE((*reader)->Read("ids", TensorSlice::Whole(DType::kF32, {2}), out).ok());
}

TEST(SafetensorsTest, EveryTruncationIsDamage) {
  std::string whole = FileBytes(WriteSample("whole.safetensors"));
  for (size_t length = 0; length < whole.size(); ++length) {
    auto reader =
        SafetensorsReader::Open(WriteTemporary("cut.safetensors", whole.substr(0, length)));
    ASSERT_FALSE(reader.ok()) << "cut to " << length;
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss) << reader.status();
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr("cut.safetensors"));
  }
}

TEST(SafetensorsTest, EveryFlippedBitIsFoundAndTheTensorNamed) {
  const std::string whole = FileBytes(WriteSample("sums.safetensors"));
  auto sound = SafetensorsReader::Open(WriteTemporary("sums.copy.safetensors", whole)).value();
  EXPECT_EQ(sound->CheckSums().value(), SafetensorsReader::Checked::kSound);
  const std::map<std::string, StoredTensor> tensors = sound->tensors();
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const std::string path = WriteTemporary("sums.flip.safetensors", bytes);
    auto reader = SafetensorsReader::Open(path);
    const absl::Status status = reader.ok() ? (*reader)->CheckSums().status() : reader.status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << "bit " << bit;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    for (const auto& [name, tensor] : tensors) {
      const auto at = static_cast<int64_t>(bit / 8);
      if (at < tensor.begin || at >= tensor.end) continue;
      EXPECT_THAT(std::string(status.message()), HasSubstr("W0960"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("tensor " + name));
    }
  }
}

TEST(SafetensorsTest, AFileOfAnotherProgramHasNoChecksumsAndIsRead) {
  const std::string header =
      R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}})";
  auto reader = SafetensorsReader::Open(WriteTemporary("foreign.safetensors", FileWith(header, 4)));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->CheckSums().value(), SafetensorsReader::Checked::kHasNoChecksums);
}

TEST(SafetensorsTest, EveryFlippedByteOfTheHeaderIsDamageOrALegalFile) {
  std::string whole = FileBytes(WriteSample("flip_source.safetensors"));
  size_t header_end = whole.size() - 12 * 4 - 2 * 4;
  for (size_t i = 0; i < header_end; ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x15);
    auto reader = SafetensorsReader::Open(WriteTemporary("flip.safetensors", bytes));
    if (reader.ok()) {
      for (const auto& [name, tensor] : (*reader)->tensors()) {
        EXPECT_LE(tensor.begin, tensor.end);
        EXPECT_LE(tensor.end, static_cast<int64_t>(bytes.size()));
      }
    } else {
      EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

struct DamageCase {
  const char* name;
  std::string header;
  int64_t data_bytes;
  const char* says;
};

class SafetensorsDamageTest : public ::testing::TestWithParam<DamageCase> {};

TEST_P(SafetensorsDamageTest, IsRefusedAndNamed) {
  const DamageCase& damage = GetParam();
  std::string path = WriteTemporary(absl::StrCat(damage.name, ".safetensors"),
                                    FileWith(damage.header, damage.data_bytes));
  auto reader = SafetensorsReader::Open(path);
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss) << reader.status();
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr(damage.says));
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr(path));
}

std::string Entry(const std::string& name, const std::string& shape, int64_t begin, int64_t end,
                  const std::string& dtype = "F32") {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":[", begin, ",", end, "]}");
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsDamageTest,
    ::testing::Values(
        DamageCase{"gap", "{" + Entry("a", "[2]", 0, 8) + "," + Entry("b", "[1]", 12, 16) + "}", 16,
                   "a gap"},
        DamageCase{"overlap", "{" + Entry("a", "[2]", 0, 8) + "," + Entry("b", "[2]", 4, 12) + "}",
                   12, "an overlap"},
        DamageCase{"same_place",
                   "{" + Entry("a", "[2]", 0, 8) + "," + Entry("b", "[2]", 0, 8) + "}", 8,
                   "an overlap"},
        DamageCase{"gap_at_start", "{" + Entry("a", "[2]", 4, 12) + "}", 12,
                   "where the header ends"},
        DamageCase{"long_file", "{" + Entry("a", "[2]", 0, 8) + "}", 9, "9 bytes of data"},
        DamageCase{"short_file", "{" + Entry("a", "[2]", 0, 8) + "}", 7, "data_offsets [0, 8]"},
        DamageCase{"size_differs", "{" + Entry("a", "[3]", 0, 8) + "}", 8, "12 bytes for F32[3]"},
        DamageCase{"reversed", "{" + Entry("a", "[2]", 8, 0) + "}", 8, "offsets in order"},
        DamageCase{"overflow", "{" + Entry("a", "[4294967296,4294967296,4294967296]", 0, 8) + "}",
                   8, "possible size"},
        DamageCase{"overflow_by_width", "{" + Entry("a", "[4611686018427387904]", 0, 0) + "}", 0,
                   "possible size"},
        DamageCase{"dtype", "{" + Entry("a", "[2]", 0, 8, "F31") + "}", 8, "\"F31\""},
        DamageCase{"negative", R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
                   "negative"},
        DamageCase{"fraction", R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8,
                   "2.5"},
        DamageCase{"huge",
                   R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})",
                   8, "2^63"},
        DamageCase{"no_dtype", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no \"dtype\""},
        DamageCase{"no_offsets", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "no \"data_offsets\""},
        DamageCase{"three_offsets", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]}})",
                   8, "3 data_offsets"},
        DamageCase{"unknown_key",
                   R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":"y"}})", 8, "\"x\""},
        DamageCase{"twice", "{" + Entry("a", "[1]", 0, 4) + "," + Entry("a", "[1]", 4, 8) + "}", 8,
                   "same name twice"},
        DamageCase{"list", "[1, 2]", 0, "a list"}, DamageCase{"text", "hello", 0, "not JSON"},
        DamageCase{"empty", "", 0, "not JSON"}, DamageCase{"trailing", "{} {}", 0, "not JSON"},
        DamageCase{"metadata_number", R"({"__metadata__":{"a":1}})", 0, "the number 1"},
        DamageCase{"nested", R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8,
                   "a list"},
        DamageCase{"bad_utf8", "{\"\xff\":1}", 0, "not JSON"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(SafetensorsTest, RefusesAHeaderLongerThanTheLimitOrTheFile) {
  for (uint64_t length : {uint64_t{100'000'001}, ~uint64_t{0}, uint64_t{50}}) {
    std::string bytes(reinterpret_cast<const char*>(&length), 8);
    auto reader = SafetensorsReader::Open(WriteTemporary("long.safetensors", bytes + "{}"));
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(SafetensorsTest, EmptyTensorsAndAnEmptyFileOfTensorsAreLegal) {
  EXPECT_TRUE(
      SafetensorsReader::Open(WriteTemporary("none.safetensors", FileWith("{}   ", 0))).ok());
  std::string header = "{" + Entry("e", "[0,3]", 0, 0) + "," + Entry("s", "[]", 0, 4) + "}";
  auto reader = SafetensorsReader::Open(WriteTemporary("empty.safetensors", FileWith(header, 4)));
  ASSERT_TRUE(reader.ok()) << reader.status();
}

TEST(SafetensorsTest, MissingFileIsNotFound) {
  auto reader = SafetensorsReader::Open(TemporaryPath("nowhere.safetensors"));
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsReader::Open(TemporaryPath("")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(SafetensorsTest, ShardsWrittenApartMakeOneFile) {
  std::string path = TemporaryPath("parts.safetensors");
  auto writer =
      SafetensorsWriter::Create(path, {{"x", DType::kF32, {3, 4}}, {"ids", DType::kI32, {2}}}, {})
          .value();
  std::vector<float> whole(12), read(12);
  for (int i = 0; i < 12; ++i) whole[i] = static_cast<float>(i);
  int32_t ids[] = {7, 8};
  for (int column : {0, 1}) {  // two holders, of columns 0 and 1..3
    auto part = SafetensorsPart::Open(writer->temporary_path(), path).value();
    TensorSlice slice{DType::kF32, {3, column == 0 ? 1 : 3}, {0, column}, {3, 4}};
    std::vector<float> shard;
    for (int row = 0; row < 3; ++row) {
      for (int c = 0; c < slice.shape[1]; ++c) shard.push_back(whole[row * 4 + column + c]);
    }
    ASSERT_EQ(part->Write("x", slice, shard.data()), absl::OkStatus());
    ASSERT_EQ(part->Flush(), absl::OkStatus());
    ASSERT_EQ(writer->NotePart("x", slice.num_elements()), absl::OkStatus());
    EXPECT_FALSE(part->Write("y", slice, shard.data()).ok());
    EXPECT_FALSE(part->Write("ids", slice, shard.data()).ok()) << "another shape";
  }
  EXPECT_FALSE(writer->NotePart("y", 1).ok());
  ASSERT_EQ(writer->Write(writer->entries()[0].name == "ids" ? 0 : 1, ids), absl::OkStatus());
  ASSERT_EQ(writer->Commit(), absl::OkStatus());
  auto reader = SafetensorsReader::Open(path).value();
  ASSERT_EQ(reader->Read("x", TensorSlice::Whole(DType::kF32, {3, 4}), read.data()),
            absl::OkStatus());
  EXPECT_EQ(read, whole);
}

TEST(SafetensorsTest, WhoeverIsKilledWhileItWritesLeavesNoFile) {
  const std::string folder = TemporaryPath("killed");
  std::filesystem::create_directory(folder);
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer =
        SafetensorsWriter::Create(folder + "/w.safetensors", {{"x", DType::kF32, {6}}}, {});
    ::raise(writer.ok() ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(SafetensorsTest, AFileIsReplacedOnlyOnceTheNewOneIsCommitted) {
  const std::string path = TemporaryPath("again.safetensors");
  for (float value : {1.0f, 2.0f, 3.0f}) {
    auto writer = SafetensorsWriter::Create(path, {{"x", DType::kF32, {1}}}, {}).value();
    ASSERT_EQ(writer->Write(0, &value), absl::OkStatus());
    if (value == 2.0f) {  // given up
      ASSERT_EQ(writer->Seal(), absl::OkStatus());
      continue;
    }
    ASSERT_EQ(writer->Commit(), absl::OkStatus());
    float read = 0;
    ASSERT_EQ(SafetensorsReader::Open(path).value()->Read("x", TensorSlice::Whole(DType::kF32, {1}),
                                                          &read),
              absl::OkStatus());
    EXPECT_EQ(read, value);
  }
}

TEST(SafetensorsTest, AnElementWrittenTwiceOrNeverIsNotCommitted) {
  for (int64_t elements : {5, 7}) {
    auto writer =
        SafetensorsWriter::Create(TemporaryPath("torn.safetensors"), {{"x", DType::kF32, {6}}}, {})
            .value();
    ASSERT_EQ(writer->NotePart("x", elements), absl::OkStatus());
    EXPECT_THAT(std::string(writer->Commit().message()), HasSubstr("W0072"));
  }
}

TEST(SafetensorsTest, AFileThatIsNotCommittedLeavesTheOldOneAndNoRest) {
  std::filesystem::path folder = TemporaryPath("atomic");
  std::filesystem::create_directories(folder);
  std::string path = (folder / "w.safetensors").string();
  std::ofstream(path) << "old";
  {
    auto writer = SafetensorsWriter::Create(path, {{"x", DType::kF32, {2}}}, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE((*writer)->Commit().ok()) << "committed though nothing was written";
  }
  EXPECT_EQ(FileBytes(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(SafetensorsTest, AFullDiskIsAnErrorThatKeepsTheOldFile) {
  std::string path = WriteTemporary("full.safetensors", "old");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  absl::Status status;
  {
    auto writer = SafetensorsWriter::Create(path, {{"x", DType::kF32, {4096}}}, {});
    std::vector<float> x(4096);
    status = writer.ok() ? (*writer)->Write(0, x.data()) : writer.status();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0046"));
  EXPECT_EQ(FileBytes(path), "old");
}

TEST(SafetensorsTest, AFolderThatDoesNotExistIsNamed) {
  auto writer = SafetensorsWriter::Create("/no/such/folder/w.safetensors", {}, {});
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("/no/such/folder/w.safetensors"));
}

// Writes one tensor f32[2] = value, value + 1.
void WriteOne(const std::string& path, const std::string& tensor, float value,
              const std::map<std::string, std::string>& metadata = {}) {
  auto writer = SafetensorsWriter::Create(path, {{tensor, DType::kF32, {2}}}, metadata);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const float data[] = {value, value + 1};
  ASSERT_TRUE((*writer)->Write(0, data).ok());
  ASSERT_TRUE((*writer)->Commit().ok());
}

// Writes tensors a and b into a file each, and an index with this text.
std::string WriteIndexed(const std::string& name, const std::string& index) {
  WriteOne(TemporaryPath("part-1.safetensors"), "a", 1);
  WriteOne(TemporaryPath("part-2.safetensors"), "b", 5);
  return WriteTemporary(name, index);
}

TEST(SafetensorsIndex, ReadsTheTensorsOfAllFilesAndIgnoresOtherKeys) {
  const std::string path =
      WriteIndexed("model.safetensors.index.json",
                   R"({"metadata": {"total_size": 16, "deep": [{"weight_map": 3}]},
          "weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})");
  auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->path(), path);
  EXPECT_EQ((*reader)->tensors().size(), 2u);
  std::vector<float> b(2);
  ASSERT_TRUE((*reader)->Read("b", TensorSlice::Whole(DType::kF32, {2}), b.data()).ok());
  EXPECT_EQ(b, (std::vector<float>{5, 6}));
  auto sums = (*reader)->CheckSums();
  ASSERT_TRUE(sums.ok());
  EXPECT_EQ(*sums, SafetensorsReader::Checked::kSound);
  EXPECT_EQ(FilesOfWeights(path),
            (std::vector<std::string>{path, TemporaryPath("part-1.safetensors"),
                                      TemporaryPath("part-2.safetensors")}));
  // A changed bit in either file is seen.
  std::string bytes = FileBytes(TemporaryPath("part-2.safetensors"));
  bytes.back() ^= 1;
  WriteTemporary("part-2.safetensors", bytes);
  reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(std::string((*reader)->CheckSums().status().message()),
              HasSubstr("part-2.safetensors, tensor b"));
}

// Writes one tensor f32[2] without checksums, as another program does.
void WriteForeign(const std::string& name, const std::string& tensor) {
  WriteTemporary(
      name, FileWith("{\"" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
}

TEST(SafetensorsIndex, AllFilesHaveChecksumsOrNoneHas) {
  const std::string path =
      WriteIndexed("some_sums.json",
                   R"({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})");
  WriteForeign("part-2.safetensors", "b");
  const absl::Status status = SafetensorsReader::Open(path).value()->CheckSums().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("W0960 at " + TemporaryPath("part-2.safetensors") +
                        ", tensor b: expected a checksum, as the tensors of " +
                        TemporaryPath("part-1.safetensors") + " have; found none"));
  WriteForeign("part-1.safetensors", "a");
  EXPECT_EQ(SafetensorsReader::Open(path).value()->CheckSums().value(),
            SafetensorsReader::Checked::kHasNoChecksums);
}

TEST(SafetensorsIndex, HasTheMetadataThatAllFilesHaveAndRefusesFilesOfTwoSteps) {
  const std::string path = WriteIndexed(
      "steps.json", R"({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})");
  EXPECT_TRUE(SafetensorsReader::Open(path).value()->metadata().empty());
  WriteOne(TemporaryPath("part-1.safetensors"), "a", 1, {{"step", "12"}, {"part", "1"}});
  EXPECT_THAT(std::string(SafetensorsReader::Open(path).status().message()),
              HasSubstr("part-2.safetensors with no step"));
  WriteOne(TemporaryPath("part-2.safetensors"), "b", 5, {{"step", "12"}, {"part", "2"}});
  EXPECT_EQ(SafetensorsReader::Open(path).value()->metadata(),
            (std::map<std::string, std::string>{{"step", "12"}}));
  WriteOne(TemporaryPath("part-2.safetensors"), "b", 5, {{"step", "24"}});
  const std::string mixed(SafetensorsReader::Open(path).status().message());
  EXPECT_THAT(mixed, HasSubstr("W0717"));
  EXPECT_THAT(mixed, HasSubstr("part-1.safetensors with states of step 12"));
  EXPECT_THAT(mixed, HasSubstr("part-2.safetensors with states of step 24"));
}

TEST(SafetensorsIndex, RefusesStatesOfTwoRunsAtOneStep) {
  const std::string path = WriteIndexed(
      "runs.json", R"({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors",
                                      "c": "part-3.safetensors"}})");
  // Writes the three files, each of step 12 and of the run of that name.
  const auto error_of = [&path](const char* a, const char* b, const char* c) {
    const std::pair<const char*, const char*> parts[] = {{"a", a}, {"b", b}, {"c", c}};
    for (int i = 0; i < 3; ++i) {
      std::map<std::string, std::string> metadata = {{"step", "12"}};
      if (*parts[i].second != 0) metadata["job_id"] = parts[i].second;
      WriteOne(TemporaryPath(absl::StrCat("part-", i + 1, ".safetensors")), parts[i].first, 1,
               metadata);
    }
    return std::string(SafetensorsReader::Open(path).status().message());
  };
  EXPECT_EQ(error_of("j1", "j1", "j1"), "");
  EXPECT_EQ(error_of("j1", "", "j1"), "") << "a file may leave its run open";
  for (const char* first : {"j1", ""}) {
    const std::string mixed = error_of(first, "j1", "j2");
    EXPECT_THAT(mixed, HasSubstr("W0967 at " + path));
    EXPECT_THAT(mixed, HasSubstr("part-3.safetensors of run j2"));
  }
  // Files of other programs may use the key for anything.
  WriteOne(TemporaryPath("part-1.safetensors"), "a", 1, {{"job_id", "1"}});
  WriteOne(TemporaryPath("part-2.safetensors"), "b", 1, {{"job_id", "2"}});
  WriteOne(TemporaryPath("part-3.safetensors"), "c", 1, {});
  EXPECT_TRUE(SafetensorsReader::Open(path).ok());
}

TEST(SafetensorsIndex, RefusesFilesOfACheckpointWithTwoCursorsOrKeys) {
  const std::string path = WriteIndexed(
      "cursors.json", R"({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})");
  const std::map<std::string, std::string> sound = {
      {"step", "12"}, {"optimizer_step", "12"}, {"samples", "48"},      {"seed", "1"},
      {"seal", "0a"}, {"key:training", "7"},    {"seal:training", "0b"}};
  WriteOne(TemporaryPath("part-1.safetensors"), "a", 1, sound);
  WriteOne(TemporaryPath("part-2.safetensors"), "b", 5, sound);
  EXPECT_EQ(SafetensorsReader::Open(path).value()->metadata(), sound);
  for (const auto& [key, text] : sound) {
    if (key == "step") continue;
    const std::string code = key.find(':') == std::string::npos ? "W0718" : "W0719";
    for (const bool is_there : {true, false}) {
      std::map<std::string, std::string> other = sound;
      other[key] = "99";
      if (!is_there) other.erase(key);
      WriteOne(TemporaryPath("part-2.safetensors"), "b", 5, other);
      const absl::Status status = SafetensorsReader::Open(path).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << key;
      EXPECT_THAT(std::string(status.message()), HasSubstr(code + " at " + path));
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr("part-1.safetensors with " + key + " " + text + " and " +
                    TemporaryPath("part-2.safetensors") + " with " +
                    (is_there ? key + " 99" : "no " + key) + ", which contradict each other"));
    }
  }
}

// The headers have the checksums of all values.
TEST(SafetensorsIndex, TheChecksumOfTheHeadersTellsValuesMetadataAndFilesApart) {
  const std::string path = WriteIndexed(
      "sums.json", R"({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})");
  const std::string second = TemporaryPath("part-2.safetensors");
  const auto sum_of = [](const std::string& of) {
    return SafetensorsReader::Open(of).value()->header_sum();
  };
  const uint32_t both = sum_of(path), one = sum_of(second);
  EXPECT_NE(both, one);
  WriteOne(second, "b", 6);
  EXPECT_NE(sum_of(path), both);
  EXPECT_NE(sum_of(second), one);
  WriteOne(second, "b", 5, {{"seed", "7"}});
  EXPECT_NE(sum_of(path), both);
  WriteOne(second, "b", 5);
  EXPECT_EQ(sum_of(path), both) << "the same bytes";
  EXPECT_EQ(sum_of(second), one);
}

TEST(SafetensorsIndex, IsNamedToWhoAsksForTheFileThatTheExportWasToBe) {
  const std::string index = WriteIndexed("export.safetensors.index.json",
                                         R"({"weight_map": {"a": "part-1.safetensors"}})");
  for (const char* name : {"export.safetensors", "export"}) {
    const std::string path = TemporaryPath(name);
    const std::string missing(SafetensorsReader::Open(path).status().message());
    EXPECT_THAT(missing, HasSubstr("W0040 at " + path));
    EXPECT_THAT(missing, HasSubstr("found none, but the index of several files. Try: " + index));
  }
  WriteOne(TemporaryPath("sharded-00001-of-00002.safetensors"), "a", 1);
  EXPECT_THAT(
      std::string(SafetensorsReader::Open(TemporaryPath("sharded.safetensors")).status().message()),
      HasSubstr("W0047 at " + TemporaryPath("sharded.safetensors.index.json")));
}

TEST(SafetensorsIndex, RefusesAnIndexThatDoesNotFitItsFiles) {
  const struct {
    const char* index;
    const char* error;
  } cases[] = {
      {"", "W0047"},
      {"[]", "W0047"},
      {"{\"metadata\": {}}", "no weight_map"},
      {R"({"weight_map": {"a": 1}})", "a number as the file of tensor \"a\""},
      {R"({"weight_map": {"a": {"b": "c"}}})", "an object in the weight map"},
      {R"({"weight_map": {"a": "../part-1.safetensors"}})", "a file in the folder of the index"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "a file in the folder of the index"},
      {R"({"weight_map": {"a": "gone.safetensors"}})", "gone.safetensors"},
      {R"({"weight_map": {"a": "part-1.safetensors", "c": "part-2.safetensors"}})",
       "no such tensor"},
      {R"({"weight_map": {"a": "part-1.safetensors", "b": "part-1.safetensors"}})",
       "no such tensor"},
      {R"({"weight_map": {"a": "part-1.safetensors", "a": "part-1.safetensors"}})", "twice"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.index);
    const auto reader = SafetensorsReader::Open(WriteIndexed("index.json", test.index));
    ASSERT_FALSE(reader.ok());
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr(test.error));
  }
  // A file with a tensor that the index does not name.
  const std::string path =
      WriteTemporary("index.json", R"({"weight_map": {"x": "sample-of-two.safetensors"}})");
  WriteSample("sample-of-two.safetensors");
  EXPECT_THAT(std::string(SafetensorsReader::Open(path).status().message()),
              HasSubstr("tensor ids: expected tensors of the index"));
}

}  // namespace
}  // namespace weir::store
