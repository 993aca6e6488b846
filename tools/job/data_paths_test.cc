#include "tools/job/data_paths.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Makes a folder with a job, a folder with other files, and a current folder that is neither.
class DataPathsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* file :
         {"job/job.textproto", "job/data/text", "other/secret", "here/text", "here/below/text"})
      folder_.Write(file, "x");
    std::filesystem::current_path(root_ / "here");
  }

  absl::Status Check(const std::string& path, const std::vector<std::string>& allowed = {}) const {
    return CheckDataPaths({{"data.text.path", path}}, {root_ / "job/job.textproto", allowed});
  }

  const TemporaryFolder folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(DataPathsTest, FilesOfTheJobOfTheCurrentFolderAndOfTheSystemAreFree) {
  for (const std::string& path :
       {(root_ / "job/data/text").string(), std::string("text"), std::string("below/text"),
        std::string("./below/../text"), std::string("no/such/text"),
        std::string("/usr/share/dict/words"), std::string("../job/data/text")}) {
    EXPECT_TRUE(Check(path).ok()) << path << ": " << Check(path);
  }
}

TEST_F(DataPathsTest, OtherFilesAreRefusedWithTheFlagThatAllowsThem) {
  for (const std::string& path :
       {(root_ / "other/secret").string(), std::string("../other/secret"),
        std::string("/etc/passwd"), std::string("/usr/share/../../etc/passwd"),
        std::string("below/../../other/secret"), std::string("/usr/shared")}) {
    const absl::Status status = Check(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("W0813 at "), HasSubstr("data.text.path"),
                      HasSubstr("Try: --allow-path /")));
  }
}

TEST_F(DataPathsTest, ALinkCountsAsWhatItPointsTo) {
  std::filesystem::create_symlink(root_ / "other/secret", root_ / "here/link");
  std::filesystem::create_directory_symlink(root_ / "other", root_ / "job/folder");
  EXPECT_THAT(std::string(Check("link").message()),
              AllOf(HasSubstr("found link, which is "), HasSubstr("other/secret")));
  EXPECT_FALSE(Check(root_ / "job/folder/secret").ok());
  EXPECT_FALSE(Check(root_ / "job/folder/not_there").ok());
}

TEST_F(DataPathsTest, AFolderThatIsNamedIsFree) {
  EXPECT_TRUE(Check("../other/secret", {"../other"}).ok());
  EXPECT_TRUE(Check("/etc/passwd", {"/"}).ok());
  EXPECT_FALSE(Check("/etc/passwd", {"../other"}).ok());
  EXPECT_THAT(std::string(Check("text", {"no/such/folder"}).message()),
              HasSubstr("W0814 at --allow-path: expected a folder"));
}

TEST_F(DataPathsTest, ALinkInAFolderOfArraysCountsAsItsFile) {
  folder_.Write("job/arrays/x.npy", "x");
  EXPECT_TRUE(Check(root_ / "job/arrays").ok());
  std::filesystem::create_symlink(root_ / "other/secret", root_ / "job/arrays/y.npy");
  EXPECT_THAT(std::string(Check(root_ / "job/arrays").message()),
              AllOf(HasSubstr("W0813"), HasSubstr("other/secret")));
  proto::Job job;
  job.mutable_data()->mutable_arrays()->add_path(root_ / "job/arrays");
  EXPECT_EQ(DataFilesOf(job),
            (std::vector<std::string>{root_ / "job/arrays/x.npy", root_ / "job/arrays/y.npy"}));
}

TEST_F(DataPathsTest, AJobFromAPipeHasTheCurrentFolderAlone) {
  const std::string beside = root_ / "job/data/text";
  EXPECT_FALSE(CheckDataPaths({{"data.text.path", beside}}, {"-", {}}).ok());
  EXPECT_TRUE(CheckDataPaths({{"data.text.path", "text"}}, {"-", {}}).ok());
}

TEST_F(DataPathsTest, TheRootAsCurrentFolderFreesNothing) {
  std::filesystem::current_path("/");
  EXPECT_FALSE(Check("/etc/passwd").ok());
  EXPECT_TRUE(Check(root_ / "job/data/text").ok());
}

TEST(DataPathsOfTest, ReplacesEveryTextOfTheData) {
  proto::Job job;
  job.mutable_data()->mutable_idx()->set_images("a");
  job.mutable_data()->mutable_idx()->set_labels("b");
  ReplaceDataPaths([](const std::string& path) { return "/copies/" + path; }, job.mutable_data());
  EXPECT_EQ(job.data().idx().images(), "/copies/a");
  EXPECT_EQ(job.data().idx().labels(), "/copies/b");
  EXPECT_EQ(job.data().idx().test_images(), "");
}

TEST(DataPathsOfTest, ANameOfAnArrayIsNoPath) {
  proto::Job job;
  proto::Data::Arrays* arrays = job.mutable_data()->mutable_arrays();
  arrays->add_scale()->set_name("image");
  proto::Data::Arrays::Array* array = arrays->add_array();
  array->set_name("image");
  array->add_path("i.npy");
  ASSERT_EQ(DataPathsOf(job).size(), 1u);
  EXPECT_EQ(DataPathsOf(job)[0].path, "i.npy");
  ReplaceDataPaths([](const std::string& path) { return "/copies/" + path; }, job.mutable_data());
  EXPECT_EQ(array->name(), "image");
  EXPECT_EQ(array->path(0), "/copies/i.npy");
}

TEST(DataPathsOfTest, FindsEveryTextOfTheData) {
  proto::Job job;
  EXPECT_TRUE(DataPathsOf(job).empty());
  job.mutable_data()->mutable_idx()->set_images("i");
  job.mutable_data()->mutable_idx()->set_test_labels("t");
  job.mutable_data()->add_feed()->set_from("a name, no file");
  const std::vector<DataPath> found = DataPathsOf(job);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].field, "data.idx.images");
  EXPECT_EQ(found[1].field, "data.idx.test_labels");
  EXPECT_EQ(found[1].path, "t");
}

}  // namespace
}  // namespace weir::job
