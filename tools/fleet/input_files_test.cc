#include "tools/fleet/input_files.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/checksum.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_index.h"

namespace weir::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class InputFilesTest : public ::testing::Test {
 protected:
  FileFingerprint Of(const std::string& content) {
    const std::string path = folder_.PathFor("file");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return FingerprintOf(path);
  }
  const TemporaryFolder folder_;
};

TEST_F(InputFilesTest, EqualFilesHaveEqualFingerprints) {
  EXPECT_TRUE(Of("some text") == Of("some text"));
  EXPECT_EQ(Of("").size, 0);
  EXPECT_EQ(FingerprintOf(folder_.PathFor("none")).size, -1);
  EXPECT_EQ(FingerprintOf(folder_.path()).size, -1);
}

TEST_F(InputFilesTest, AFlippedByteOfASmallFileIsSeenWhereverItIs) {
  const std::string content(1'000'000, 'x');
  const FileFingerprint whole = Of(content);
  for (size_t place : {0u, 65'535u, 65'536u, 500'000u, 999'999u}) {
    std::string other = content;
    other[place] = 'y';
    EXPECT_FALSE(Of(other) == whole) << place;
  }
}

TEST_F(InputFilesTest, TheEndsOfALargeFileCount) {
  const std::string content(9'000'000, 'x');
  const FileFingerprint whole = Of(content);
  for (size_t place : {size_t{0}, content.size() - 1}) {
    std::string other = content;
    other[place] = 'y';
    EXPECT_FALSE(Of(other) == whole) << place;
  }
  EXPECT_FALSE(Of(content + "x") == whole);
}

TEST_F(InputFilesTest, MessagesThatEndInTheirOwnSumHaveOtherFingerprints) {
  const auto with_sum = [](std::string message) {
    const uint32_t sum = Crc32c(message.data(), message.size());
    return message.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  };
  // Files that are read whole, and one of which blocks are read.
  for (const size_t size : {100u, 70'000u, 9'000'000u}) {
    SCOPED_TRACE(size);
    std::string message(size, 'x');
    const std::string one = with_sum(message);
    message[0] = 'y';
    const std::string other = with_sum(message);
    ASSERT_EQ(Crc32c(one.data(), one.size()), Crc32c(other.data(), other.size()));
    EXPECT_FALSE(Of(one) == Of(other));
    EXPECT_FALSE(Of("before" + one + "after") == Of("before" + other + "after"));
  }
}

TEST_F(InputFilesTest, CheckpointsOfTwoRunsAtOneStepHaveOtherFingerprints) {
  // A large index has more bytes than are read.
  for (const size_t plan_bytes : {16u, 9'000'000u}) {
    SCOPED_TRACE(plan_bytes);
    std::vector<FileFingerprint> prints;
    for (const std::string run : {"0123456789abcdef", "fedcba9876543210"}) {
      store::CheckpointIndex index;
      index.facts.job_id = run;
      index.facts.plan_id = std::string(plan_bytes, 'p');
      index.facts.step = 12;
      folder_.Write(run + "/step-000000012/index.pb", store::EncodeIndex(index));
      prints.push_back(FingerprintOf(folder_.PathFor(run + "/step-000000012")));
    }
    EXPECT_EQ(prints[0].size, prints[1].size);
    EXPECT_GT(prints[0].size, 0);
    EXPECT_FALSE(prints[0] == prints[1]);
  }
}

TEST_F(InputFilesTest, ACheckpointFolderIsItsIndexAndIsShippedFileByFile) {
  folder_.Write("run/step-000000012/index.pb", "the index");
  folder_.Write("run/step-000000012/rank-00000.safetensors", "shards of this host");
  const std::string path = folder_.PathFor("run/step-000000012");
  EXPECT_TRUE(FingerprintOf(path) == Of("the index"));
  // This index names no files.
  const std::vector<ShippedFile> files = FilesToShip(path);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].from, path + "/index.pb");
  EXPECT_EQ(PathOfCopy(files[0], "/there/0-run"), "/there/0-run/index.pb");
  EXPECT_EQ(PathOfCopy(FilesToShip(folder_.PathFor("file"))[0], "/there/0-file"), "/there/0-file");
}

TEST_F(InputFilesTest, AnIndexOfWeightsIsAllItsFilesAndIsShippedWithThem) {
  folder_.Write("m.safetensors.index.json",
                R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  folder_.Write("m-1.safetensors", "one");
  folder_.Write("m-2.safetensors", "two");
  const std::string index = folder_.PathFor("m.safetensors.index.json");
  const FileFingerprint whole = FingerprintOf(index);
  EXPECT_TRUE(FingerprintOf(index) == whole);
  folder_.Write("m-2.safetensors", "six");
  EXPECT_FALSE(FingerprintOf(index) == whole);
  const std::string copy = ShippedPath("/logs", "b", 3, index);
  EXPECT_EQ(copy, "/logs/shipped/b/3/m.safetensors.index.json");
  const std::vector<ShippedFile> files = FilesToShip(index);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(PathOfCopy(files[0], copy), copy);
  EXPECT_EQ(PathOfCopy(files[1], copy), "/logs/shipped/b/3/m-1.safetensors");
  EXPECT_EQ(files[2].from, folder_.PathFor("m-2.safetensors"));
  std::filesystem::remove(folder_.PathFor("m-2.safetensors"));
  EXPECT_FALSE(FingerprintOf(index) == whole);
}

TEST_F(InputFilesTest, EachHostWithAnotherFileIsNamedOnce) {
  const FileFingerprint own = {10, 7};
  EXPECT_TRUE(
      CheckSameFile(own, OwnFile::kNow, {{"book.txt", "a", own}, {"book.txt", "b", own}}).ok());
  const std::string text(CheckSameFile(own, OwnFile::kNow,
                                       {{"book.txt", "a", own},
                                        {"book.txt", "b", {10, 8}},
                                        {"book.txt", "b", {10, 8}},
                                        {"book.txt", "c", {}}})
                             .message());
  EXPECT_THAT(text, HasSubstr("W0883 at book.txt on host 'b'"));
  EXPECT_THAT(text, HasSubstr("(10 bytes, checksum 00000008)"));
  EXPECT_THAT(text, HasSubstr("book.txt on host 'c'"));
  EXPECT_THAT(text, HasSubstr("found no such file"));
  EXPECT_THAT(text, Not(HasSubstr("host 'a'")));
  EXPECT_THAT(text, HasSubstr("the file that the starter has: "));
  const absl::Status later =
      CheckSameFile(own, OwnFile::kAsTheRunBegan, {{"book.txt", "b", {10, 8}}});
  EXPECT_THAT(std::string(later.message()), HasSubstr("had as the run began: "));
}

}  // namespace
}  // namespace weir::fleet
