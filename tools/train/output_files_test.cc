#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/train/event_file.h"
#include "tools/train/metrics_file.h"

namespace weir::train {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class OutputFilesTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

 private:
  const TemporaryFolder folder_;
};

TEST_F(OutputFilesTest, TheSecondJobWithAMetricsFileIsTold) {
  const std::string path = Path("metrics");
  auto first = MetricsFile::Open(path, MetricsFile::Begin::kAnew).value();
  const absl::Status second = MetricsFile::Open(path, MetricsFile::Begin::kAfterOthers).status();
  EXPECT_THAT(std::string(second.message()), HasSubstr("W0961"));
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("pid ", ::getpid())));
  first.reset();
  EXPECT_TRUE(MetricsFile::Open(path, MetricsFile::Begin::kAfterOthers).ok());
}

TEST_F(OutputFilesTest, ARestartWritesIntoNoMetricsFileOfAnotherJob) {
  const std::string path = Path("metrics");
  auto other = MetricsFile::Open(path, MetricsFile::Begin::kAnew).value();
  auto again = MetricsFile::OpenAgain(path, MetricsFile::Begin::kAfterOthers);
  MetricLine line(1);
  EXPECT_THAT(again->Write(line), HasSubstr("WARNING: --metrics " + path));
  EXPECT_EQ(again->Write(line), "");
  EXPECT_EQ(Text(path), "");
  other.reset();
  EXPECT_THAT(again->Write(line), HasSubstr("lines are written again; 2 are lost"));
  EXPECT_EQ(Text(path), line.Text() + "\n");
}

TEST_F(OutputFilesTest, AMetricsFileThatIsRemovedIsMadeAgain) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  EXPECT_EQ(file->Write(MetricLine(1)), "");
  std::filesystem::remove(Path("metrics"));
  EXPECT_EQ(file->Write(MetricLine(2)),
            absl::StrCat("WARNING: --metrics ", Path("metrics"),
                         ": somebody has removed or replaced the file that the run writes. What it "
                         "had up to step 1 is lost, unless somebody has a copy; step 2 and later "
                         "ones go into the file at the path"));
  EXPECT_EQ(file->Write(MetricLine(3)), "");
  EXPECT_EQ(Text(Path("metrics")), "{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(OutputFilesTest, AMetricsFileThatIsRenamedKeepsItsLinesAndANewOneGoesOn) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  EXPECT_EQ(file->Write(MetricLine(1)), "");
  std::filesystem::rename(Path("metrics"), Path("metrics.1"));
  EXPECT_THAT(
      file->Write(MetricLine(2)),
      ContainsRegex("What it had up to step 1 is only in /.*/metrics.1; step 2 and later ones go "
                    "into the file at the path"));
  EXPECT_EQ(file->Write(MetricLine(3)), "");
  EXPECT_EQ(Text(Path("metrics.1")), "{\"step\":1}\n");
  EXPECT_EQ(Text(Path("metrics")), "{\"step\":2}\n{\"step\":3}\n");
}

TEST_F(OutputFilesTest, AMetricsFileThatIsRemovedOnNfsIsGone) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  file->Write(MetricLine(1));
  std::filesystem::rename(Path("metrics"), Path(".nfs000000000000002a00000001"));
  EXPECT_THAT(file->Write(MetricLine(2)), HasSubstr("removed or replaced"));
  EXPECT_EQ(Text(Path("metrics")), "{\"step\":2}\n");
}

TEST_F(OutputFilesTest, AFileInThePlaceOfAMetricsFileKeepsWhatItHas) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  EXPECT_EQ(file->Write(MetricLine(1)), "");
  std::ofstream(Path("edited")) << "{\"step\":1,\"by\":\"an editor\"}\n";
  std::filesystem::rename(Path("edited"), Path("metrics"));
  EXPECT_THAT(file->Write(MetricLine(2)), HasSubstr("removed or replaced"));
  EXPECT_EQ(Text(Path("metrics")), "{\"step\":1,\"by\":\"an editor\"}\n{\"step\":2}\n");
}

TEST_F(OutputFilesTest, AFileInThePlaceOfAMetricsFileKeepsItsLaterStepsWhenTheRunGoesBack) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  file->Write(MetricLine(1));
  std::filesystem::rename(Path("metrics"), Path("kept"));
  const std::string others = MetricLine(7).Text() + "\n" + MetricLine(8).Text() + "\n";
  std::ofstream(Path("metrics")) << others;
  file->GoBackTo(0);
  for (const int64_t step : {1, 2, 3}) file->Write(MetricLine(step));
  file->GoBackTo(1);
  file->Write(MetricLine(2));
  EXPECT_EQ(Text(Path("metrics")),
            absl::StrCat(others, MetricLine(1).Text(), "\n", MetricLine(2).Text(), "\n"));
}

TEST_F(OutputFilesTest, ALockedFileInThePlaceOfAMetricsFileLeavesTheLinesOfTheRenamedOneToTheRun) {
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  for (const int64_t step : {1, 2, 3}) file->Write(MetricLine(step));
  std::filesystem::rename(Path("metrics"), Path("kept"));
  const std::string others(1000, 'x');
  std::ofstream(Path("metrics")) << others;
  const auto other = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAfterOthers).value();
  EXPECT_THAT(file->Write(MetricLine(4)), HasSubstr("and later steps"));
  file->GoBackTo(1);
  EXPECT_EQ(file->Write(MetricLine(2)), "");
  EXPECT_EQ(Text(Path("kept")), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(Text(Path("metrics")), others);
}

TEST_F(OutputFilesTest, AFileInThePlaceOfAMetricsFileWithoutALineKeepsWhatItHas) {
  std::ofstream(Path("metrics")) << "an earlier run\n";
  auto file = MetricsFile::Open(Path("metrics"), MetricsFile::Begin::kAnew).value();
  std::filesystem::rename(Path("metrics"), Path("kept"));
  std::ofstream(Path("metrics")) << "others\n";
  EXPECT_EQ(file->Write(MetricLine(1)), "");
  EXPECT_EQ(Text(Path("metrics")), "others\n" + MetricLine(1).Text() + "\n");
  EXPECT_EQ(Text(Path("kept")), "an earlier run\n");
}

TEST_F(OutputFilesTest, AMetricsFileWhoseFolderIsRenamedIsWrittenOnWhereItIs) {
  std::filesystem::create_directory(Path("run"));
  auto file = MetricsFile::Open(Path("run/metrics"), MetricsFile::Begin::kAnew).value();
  EXPECT_EQ(file->Write(MetricLine(1)), "");
  std::filesystem::rename(Path("run"), Path("moved"));
  EXPECT_THAT(file->Write(MetricLine(2)),
              ContainsRegex("is only in /.*/moved/metrics, and later steps"));
  EXPECT_EQ(file->Write(MetricLine(3)), "");
  file->GoBackTo(2);  // a recovery takes lines away from the file that it writes
  EXPECT_EQ(file->Write(MetricLine(3)), "");
  EXPECT_EQ(Text(Path("moved/metrics")), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  std::filesystem::create_directory(Path("run"));
  EXPECT_THAT(file->Write(MetricLine(4)), HasSubstr("step 4 and later ones go into the file"));
  EXPECT_EQ(Text(Path("run/metrics")), "{\"step\":4}\n");
}

TEST_F(OutputFilesTest, AnEventFileThatIsRemovedIsBegunAgain) {
  const auto files = [this] {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(Path("tb")))
      paths.push_back(entry.path());
    return paths;
  };
  EventFile file(Path("tb"));
  EXPECT_EQ(file.Write(1, 1e9, {{"loss", 1.0}}), "");
  ASSERT_EQ(files().size(), 1u);
  std::filesystem::remove(files()[0]);
  EXPECT_THAT(file.Write(2, 1e9, {{"loss", 1.0}}),
              HasSubstr("What it had up to step 1 is lost, unless somebody has a copy; step 2"));
  EXPECT_EQ(file.Write(3, 1e9, {{"loss", 1.0}}), "");
  ASSERT_EQ(files().size(), 1u);
  std::filesystem::rename(Path("tb"), Path("moved"));
  EXPECT_THAT(file.Write(4, 1e9, {{"loss", 1.0}}),
              ContainsRegex("is only in /.*/moved/events.out"));
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(OutputFilesTest, AStepThatIsDoneAgainHasOneLine) {
  const auto write = [](MetricsFile* file, int64_t begin, int64_t end, double loss) {
    for (int64_t step = begin; step <= end; ++step) {
      MetricLine line(step);
      line.Add("loss", loss);
      EXPECT_EQ(file->Write(line), "");
    }
  };
  const std::string path = Path("metrics");
  {
    auto file = MetricsFile::Open(path, MetricsFile::Begin::kAnew).value();
    file->GoBackTo(0);
    write(file.get(), 1, 11, 1);
    file->GoBackTo(3);  // a recovery
    EXPECT_THAT(Text(path), HasSubstr("\"step\":11")) << "until the next line is written";
    write(file.get(), 4, 5, 2);
  }
  std::ofstream(path, std::ios::app) << "{\"step\":6,\"lo";  // the machine has lost power
  auto resumed = MetricsFile::Open(path, MetricsFile::Begin::kAfterOthers).value();
  resumed->GoBackTo(4);
  write(resumed.get(), 5, 5, 3);
  EXPECT_EQ(Text(path), R"({"step":1,"loss":1}
{"step":2,"loss":1}
{"step":3,"loss":1}
{"step":4,"loss":2}
{"step":5,"loss":3}
)");
}

}  // namespace
}  // namespace weir::train
