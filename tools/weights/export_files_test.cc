// An export appears as a whole, whenever its process is killed.
#include "tools/weights/export_files.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_metadata.h"
#include "tools/weights/find_weights.h"

namespace weir::weights {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kThreeFiles = 8, kTwoFiles = 16, kOneFile = 0;  // bytes of a file
constexpr int kDone = 7;

// A folder for exports of three tensors of two elements. Each element is the step.
class ExportFilesTest : public ::testing::Test {
 protected:
  static std::string PathIn(const TemporaryFolder& folder) {
    return folder.PathFor("m.safetensors");
  }
  static std::vector<Entries> Packed(int64_t file_bytes) {
    return PackIntoFiles(
        {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}, {"c", DType::kF32, {2}}}, file_bytes);
  }
  static absl::Status Seal(int64_t step, ExportFiles* files) {
    return files->Seal(store::WeightsMetadataOf("job", step),
                       [&](store::SafetensorsWriter* writer) -> absl::Status {
                         const std::vector<float> values(2, static_cast<float>(step));
                         for (size_t i = 0; i < writer->entries().size(); ++i)
                           WEIR_RETURN_IF_ERROR(writer->Write(i, values.data()));
                         return absl::OkStatus();
                       });
  }
  // Writes a whole export, and returns its files.
  static std::vector<std::string> Export(const TemporaryFolder& folder, int64_t step,
                                         int64_t file_bytes) {
    ExportFiles files(PathIn(folder), Packed(file_bytes));
    EXPECT_EQ(Seal(step, &files), absl::OkStatus());
    EXPECT_EQ(files.Commit(), absl::OkStatus());
    return files.paths();
  }
  // Exports in a process that is killed after `count` operations of Commit. Returns whether there
  // are more.
  static bool KillAfter(size_t count, const TemporaryFolder& folder, int64_t step,
                        int64_t file_bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      ExportFiles files(PathIn(folder), Packed(file_bytes));
      if (!Seal(step, &files).ok()) ::_exit(1);
      const absl::StatusOr<bool> more = files.CommitSomeForTest(count);
      if (!more.ok()) ::_exit(1);
      if (*more) ::raise(SIGKILL);
      ::_exit(kDone);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      return true;
    }
    EXPECT_EQ(WEXITSTATUS(status), kDone);
    return false;
  }
  // Returns the step of the export in the folder, whose values are all of that step; nullopt: a
  // reader is told that there is no index.
  static std::optional<int64_t> StepIn(const TemporaryFolder& folder) {
    const std::string index = PathIn(folder) + ".index.json";
    const auto opened = store::SafetensorsReader::Open(index);
    if (!opened.ok()) {
      for (const absl::Status& status : {opened.status(), WeightFileOf(folder.path()).status()}) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("W0047"), HasSubstr("their export was cut short")));
      }
      return std::nullopt;
    }
    EXPECT_EQ((*opened)->CheckSums().value(), store::SafetensorsReader::Checked::kSound);
    EXPECT_EQ((*opened)->tensors().size(), 3u);
    const std::optional<int64_t> step = store::StepsBehind((*opened)->metadata());
    for (const auto& [name, tensor] : (*opened)->tensors()) {
      std::vector<float> values(2);
      EXPECT_EQ((*opened)->Read(name, TensorSlice::Whole(DType::kF32, {2}), values.data()),
                absl::OkStatus());
      EXPECT_EQ(values, std::vector<float>(2, static_cast<float>(step.value_or(-1)))) << name;
    }
    return step;
  }
};

TEST_F(ExportFilesTest, AKillLeavesTheEarlierExportOrNoIndexOrTheNewOne) {
  for (const int64_t file_bytes : {kThreeFiles, kTwoFiles}) {
    const size_t num_files = Packed(file_bytes).size();
    bool more = true;
    for (size_t count = 0; more; ++count) {
      SCOPED_TRACE(absl::StrCat(num_files, " files, killed after ", count, " operations"));
      const TemporaryFolder folder;
      Export(folder, 12, kThreeFiles);
      more = KillAfter(count, folder, 24, file_bytes);
      const std::optional<int64_t> found = StepIn(folder);
      if (count == 0) {
        EXPECT_EQ(found, 12);
      } else if (count <= 1 + num_files) {
        EXPECT_EQ(found, std::nullopt);
      } else {
        EXPECT_EQ(found, 24);
      }
      const std::vector<std::string> files = Export(folder, 36, file_bytes);
      EXPECT_EQ(StepIn(folder), 36);
      const bool has_lost_shards = file_bytes == kTwoFiles && count > 0 && count <= 2 + num_files;
      EXPECT_EQ(StrayText(PathIn(folder), files) != "", has_lost_shards);
    }
  }
}

TEST_F(ExportFilesTest, ASealedExportHasChangedNothing) {
  const TemporaryFolder folder;
  Export(folder, 12, kThreeFiles);
  {
    ExportFiles files(PathIn(folder), Packed(kThreeFiles));
    ASSERT_EQ(Seal(24, &files), absl::OkStatus());
    EXPECT_EQ(StepIn(folder), 12);
  }
  EXPECT_EQ(StepIn(folder), 12);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4);
}

TEST_F(ExportFilesTest, ACommitThatFailsTakesItsNewFilesAway) {
  const TemporaryFolder folder;
  {
    ExportFiles files(PathIn(folder), Packed(kThreeFiles));
    ASSERT_EQ(Seal(24, &files), absl::OkStatus());
    std::filesystem::create_directory(files.paths()[2]);
    EXPECT_THAT(std::string(files.Commit().message()), HasSubstr("W0046"));
    std::filesystem::remove(files.paths()[2]);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(ExportFilesTest, OneFileHasNoIndex) {
  const TemporaryFolder folder;
  EXPECT_EQ(Export(folder, 12, kOneFile), std::vector<std::string>{PathIn(folder)});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST_F(ExportFilesTest, FilesOfTwoExportsAreNotMixed) {
  const TemporaryFolder folder, other;
  const std::vector<std::string> files = Export(folder, 12, kThreeFiles);
  std::filesystem::copy_file(Export(other, 24, kThreeFiles)[1], files[1],
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(std::string(store::SafetensorsReader::Open(files[3]).status().message()),
              AllOf(HasSubstr("W0047"), HasSubstr(files[0] + " with weights of step 12"),
                    HasSubstr(files[1] + " with weights of step 24")));
}

TEST_F(ExportFilesTest, ShardsOfAnEarlierExportGoAndOtherFilesStay) {
  const TemporaryFolder folder;
  const auto at = [&](const std::string& name) { return folder.PathFor(name); };
  const std::vector<std::string> old = FilesOfExport(at("model.safetensors"), 3);
  const std::vector<std::string> strange = {at("model-00001-of-00004.safetensors"),
                                            at("other.safetensors")};
  for (const std::string& path : old) std::ofstream(path) << "x";
  for (const std::string& path : strange) std::ofstream(path) << "x";
  std::ofstream(old.back()) << R"({"weight_map": {
      "a": "model-00001-of-00003.safetensors", "b": "model-00002-of-00003.safetensors",
      "c": "other.safetensors"}})";
  const EarlierShards earlier(at("model.safetensors"));
  earlier.RemoveOthers({old[1]});
  EXPECT_FALSE(std::filesystem::exists(old[0]));
  for (const std::string& path : {old[1], old[2], old[3], strange[0], strange[1]})
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

}  // namespace
}  // namespace weir::weights
