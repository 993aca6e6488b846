#include "tools/fleet/input_watch.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Use = InputWatch::Use;

class InputWatchTest : public ::testing::Test {
 protected:
  InputWatchTest() {
    folder_.Write("text", "some text");
    folder_.Write("weights", "some weights");
  }
  InputWatch Watch() const { return InputWatch({text_}, {weights_}); }
  static std::string Error(const InputWatch& watch, Use use) {
    const absl::Status status = watch.Check(use);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  }
  // Puts a new file in the place of a file.
  void Replace(const std::string& path, const std::string& contents) {
    folder_.Write("new", contents);
    std::filesystem::rename(folder_.PathFor("new"), path);
  }

  const TemporaryFolder folder_;
  const std::string text_ = folder_.PathFor("text"), weights_ = folder_.PathFor("weights");
};

TEST_F(InputWatchTest, FilesThatNobodyTouchesAreTheSame) {
  const InputWatch watch = Watch();
  EXPECT_TRUE(watch.Check(Use::kDataAndStart).ok());
  EXPECT_THAT(watch.FilesFor(Use::kData), ElementsAre(text_));
  EXPECT_THAT(watch.FilesFor(Use::kDataAndStart), ElementsAre(text_, weights_));
}

TEST_F(InputWatchTest, AFileOfTheSameBytesIsTheSameFileWhateverItsInodeAndTime) {
  const InputWatch watch = Watch();
  Replace(text_, "some text");
  std::filesystem::last_write_time(
      weights_, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(watch.Check(Use::kDataAndStart).ok());
}

TEST_F(InputWatchTest, TheErrorTellsAFileInItsPlaceFromOtherContents) {
  const InputWatch watch = Watch();
  Replace(text_, "more text!");
  std::ofstream(weights_, std::ios::in | std::ios::out) << "S";
  const std::string text = Error(watch, Use::kDataAndStart);
  EXPECT_THAT(text, HasSubstr("W0968 at " + text_));
  EXPECT_THAT(text, HasSubstr("the file as the run began: 9 B (9 bytes, checksum "));
  EXPECT_THAT(text, HasSubstr("another file in its place: 10 B (10 bytes, checksum "));
  EXPECT_THAT(text, HasSubstr(" UTC"));
  EXPECT_THAT(text, HasSubstr("W0968 at " + weights_));
  EXPECT_THAT(text, HasSubstr("other contents in the same file: 12 B (12 bytes, checksum "));
}

TEST_F(InputWatchTest, AFileThatIsGoneIsNamed) {
  const InputWatch watch = Watch();
  std::filesystem::remove(text_);
  EXPECT_THAT(Error(watch, Use::kData), HasSubstr("found no such file"));
}

TEST_F(InputWatchTest, AFileThatIsNotReadAgainStopsNothing) {
  const InputWatch watch = Watch();
  std::filesystem::remove(weights_);
  EXPECT_TRUE(watch.Check(Use::kData).ok());
  EXPECT_THAT(Error(watch, Use::kDataAndStart), Not(HasSubstr("W0968 at " + text_)));
}

TEST_F(InputWatchTest, OnlyTheNamedFilesThatTheWatchKnowsAreCompared) {
  const InputWatch watch = Watch();
  std::filesystem::remove(weights_);
  EXPECT_TRUE(watch.CheckKnown({text_, folder_.PathFor("checkpoint")}).ok());
  EXPECT_EQ(watch.CheckKnown({text_, weights_}).code(), absl::StatusCode::kDataLoss);
}

TEST_F(InputWatchTest, ThePrintOfAKnownFileIsThatOfTheBegin) {
  const InputWatch watch = Watch();
  const FileFingerprint before = FingerprintOf(text_);
  Replace(text_, "more text!");
  EXPECT_TRUE(watch.PrintOf(text_) == before);
  folder_.Write("other", "other");
  EXPECT_FALSE(watch.PrintOf(folder_.PathFor("other")).has_value());
}

}  // namespace
}  // namespace weir::fleet
