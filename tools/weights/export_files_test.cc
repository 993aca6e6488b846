// An export appears as a whole, whenever its process is killed and whatever the disk refuses. The
// functions rename and linkat of this program stand in front of those of the C library and fail on
// demand.
#include "tools/weights/export_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
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
#include "runtime/store/weight_index.h"
#include "tools/weights/find_weights.h"

namespace {

// Calls that give a name fail from the first to the last of these, counted from 1.
int first_failing = 0, last_failing = 0, num_named = 0;

bool Fails() {
  const bool fails = ++num_named >= first_failing && num_named <= last_failing;
  if (fails) errno = EIO;
  return fails;
}

void FailCalls(int first, int last) {
  first_failing = first;
  last_failing = last;
  num_named = 0;
}

}  // namespace

extern "C" int rename(const char* from, const char* to) noexcept {
  return Fails() ? -1 : static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to,
                      int flags) noexcept {
  return Fails() ? -1
                 : static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

namespace weir::weights {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  // Begins an export that cannot be filled. It clears up what another one has left.
  static void ExportNothing(const TemporaryFolder& folder, int64_t file_bytes) {
    ExportFiles files(PathIn(folder), Packed(file_bytes));
    EXPECT_EQ(files.Seal({}, [](store::SafetensorsWriter*) { return absl::AbortedError(""); }),
              absl::AbortedError(""));
  }
  static std::ptrdiff_t NumEntries(const TemporaryFolder& folder) {
    return std::distance(std::filesystem::directory_iterator(folder.path()), {});
  }
  // Returns the step of the export in the folder, whose values are all of that step; nullopt: a
  // reader is told that there is no index.
  static std::optional<int64_t> StepIn(const TemporaryFolder& folder) {
    const std::string index = PathIn(folder) + ".index.json";
    const auto opened = store::SafetensorsReader::Open(index);
    if (!opened.ok()) {
      for (const absl::Status& status : {opened.status(), WeightFileOf(folder.path()).status()}) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("W0047"), HasSubstr("their export was cut short"),
                          HasSubstr("export again"), Not(HasSubstr("copy the index"))));
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
    std::vector<std::optional<int64_t>> found;  // by the number of operations before the kill
    for (bool more = true; more;) {
      SCOPED_TRACE(absl::StrCat(num_files, " files, killed after ", found.size(), " operations"));
      const TemporaryFolder folder;
      Export(folder, 12, kThreeFiles);
      more = KillAfter(found.size(), folder, 24, file_bytes);
      found.push_back(StepIn(folder));
      // The next export puts a whole one back, even if nothing comes of it.
      ExportNothing(folder, file_bytes);
      EXPECT_EQ(StepIn(folder), found.back().value_or(12));
      const std::vector<std::string> files = Export(folder, 36, file_bytes);
      EXPECT_EQ(StepIn(folder), 36);
      EXPECT_EQ(NumEntries(folder), static_cast<std::ptrdiff_t>(files.size()));
      EXPECT_EQ(StrayText(PathIn(folder), files), "");
    }
    // The last two operations are the name of the index, and the end of the earlier files.
    ASSERT_GT(found.size(), 3 + num_files);
    std::vector<std::optional<int64_t>> expected(found.size());
    expected.front() = 12;
    expected.end()[-1] = expected.end()[-2] = 24;
    EXPECT_EQ(found, expected);
  }
}

TEST_F(ExportFilesTest, ADiskThatRefusesANameLeavesTheEarlierExport) {
  for (const int64_t file_bytes : {kThreeFiles, kTwoFiles}) {
    bool is_done = false;
    for (int call = 1; !is_done; ++call) {
      SCOPED_TRACE(absl::StrCat(Packed(file_bytes).size(), " files, call ", call));
      const TemporaryFolder folder, elsewhere;
      const std::string link = Export(folder, 12, kThreeFiles)[0];
      std::filesystem::rename(link, elsewhere.PathFor("blob"));
      std::filesystem::create_symlink(elsewhere.PathFor("blob"), link);
      {
        ExportFiles files(PathIn(folder), Packed(file_bytes));
        ASSERT_EQ(Seal(24, &files), absl::OkStatus());
        FailCalls(call, call);
        const absl::Status done = files.Commit();
        FailCalls(0, 0);
        is_done = done.ok();
        if (!is_done) {
          EXPECT_THAT(
              std::string(done.message()),
              AllOf(HasSubstr("W0046"), HasSubstr("the earlier export is in its place again")));
        }
      }
      EXPECT_EQ(StepIn(folder), is_done ? 24 : 12);
      EXPECT_EQ(NumEntries(folder), is_done && file_bytes == kTwoFiles ? 3 : 4);
      EXPECT_EQ(NumEntries(elsewhere), 1);
      EXPECT_EQ(std::filesystem::is_symlink(link), !is_done || file_bytes == kThreeFiles);
    }
  }
}

TEST_F(ExportFilesTest, ADiskThatAlsoRefusesToGoBackLosesNothingAndTheErrorSaysWhatIsWhere) {
  bool is_done = false;
  for (int call = 2; !is_done; ++call) {  // the first sets the earlier index aside
    SCOPED_TRACE(call);
    const TemporaryFolder folder;
    Export(folder, 12, kThreeFiles);
    {
      ExportFiles files(PathIn(folder), Packed(kThreeFiles));
      ASSERT_EQ(Seal(24, &files), absl::OkStatus());
      FailCalls(call, 1000);
      const absl::Status done = files.Commit();
      FailCalls(0, 0);
      is_done = done.ok();
      if (is_done) break;
      EXPECT_THAT(std::string(done.message()),
                  AllOf(HasSubstr("of the earlier export cannot be put back"),
                        HasSubstr("from " + files.paths().back() + " on"), HasSubstr(".replaced-"),
                        HasSubstr("export again")));
    }
    EXPECT_EQ(StepIn(folder), std::nullopt);
    ExportNothing(folder, kThreeFiles);
    EXPECT_EQ(StepIn(folder), 12);
    EXPECT_EQ(NumEntries(folder), 4);
  }
}

TEST_F(ExportFilesTest, AFolderInTheWayIsSeenBeforeTheEarlierExportIsTouched) {
  const TemporaryFolder folder;
  Export(folder, 12, kThreeFiles);
  ExportFiles files(PathIn(folder), Packed(kTwoFiles));
  ASSERT_EQ(Seal(24, &files), absl::OkStatus());
  std::filesystem::create_directory(files.paths()[1]);
  const absl::Status refused = files.Commit();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("W0046"), HasSubstr(files.paths()[1])));
  std::filesystem::remove(files.paths()[1]);
  EXPECT_EQ(StepIn(folder), 12);
}

TEST_F(ExportFilesTest, OneProcessAtATimeExportsToAPath) {
  const TemporaryFolder folder;
  const std::string lock = folder.Write("m.safetensors.lock", "");  // of a process that was killed
  {
    ExportFiles first(PathIn(folder), Packed(kThreeFiles));
    ASSERT_EQ(Seal(12, &first), absl::OkStatus());
    for (const int64_t file_bytes : {kThreeFiles, kOneFile}) {
      ExportFiles second(PathIn(folder), Packed(file_bytes));
      const absl::Status refused = Seal(24, &second);
      EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr("W0961"), HasSubstr(PathIn(folder)),
                        HasSubstr(absl::StrCat("(pid ", ::getpid(), ")"))));
    }
    EXPECT_EQ(first.Commit(), absl::OkStatus());
  }
  EXPECT_FALSE(std::filesystem::exists(lock));
  EXPECT_EQ(StepIn(folder), 12);
  Export(folder, 24, kThreeFiles);
  EXPECT_EQ(StepIn(folder), 24);
}

TEST_F(ExportFilesTest, WhatAKilledExportHasLeftIsSweptAndNothingElse) {
  const TemporaryFolder folder;
  const std::string ending = ".partial-0123456789abcdef";
  for (const char* swept : {"m.safetensors", "m-00002-of-00007.safetensors",
                            "m.safetensors.index.json", "m-00001-of-00003.safetensors"})
    folder.Write(swept + ending, "half");
  for (const char* stays : {"n.safetensors", "m", "n-00001-of-00003.safetensors"})
    folder.Write(stays + ending, "half");
  Export(folder, 12, kThreeFiles);
  EXPECT_EQ(NumEntries(folder), 4 + 3);
}

// A file system without locks has them.
TEST_F(ExportFilesTest, FilesThatStaySetAsideAreNamed) {
  const TemporaryFolder folder;
  const std::vector<std::string> files = Export(folder, 12, kThreeFiles);
  const std::string ending = ".replaced-0123456789abcdef";
  for (const std::string& path : {files[0], files.back()}) std::ofstream(path + ending) << "x";
  EXPECT_THAT(StrayText(PathIn(folder), files),
              AllOf(HasSubstr("set aside " + files[0] + ending + " and 1 file like it"),
                    HasSubstr("without locks")));
}

TEST_F(ExportFilesTest, FilesThatAreSetAsideWhereALinkLeadsAreFound) {
  const TemporaryFolder folder, elsewhere;
  const std::vector<std::string> files = Export(folder, 12, kThreeFiles);
  const std::string target = elsewhere.PathFor("index"), ending = ".replaced-0123456789abcdef";
  std::filesystem::rename(files.back(), target + ending);
  std::filesystem::create_symlink(target, files.back());
  EXPECT_THAT(StrayText(PathIn(folder), files),
              AllOf(HasSubstr("an export has set aside "), HasSubstr("/index" + ending)));
  EXPECT_THAT(std::string(store::CheckIndexIsThere(files.back()).message()),
              HasSubstr("files of an earlier one are set aside"));
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
  EXPECT_EQ(NumEntries(folder), 4);
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
  EXPECT_EQ(NumEntries(folder), 1);
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
  const std::vector<std::string> old = FilesOfExport(PathIn(folder), 3);
  const std::vector<std::string> strange = {folder.PathFor("m-00001-of-00004.safetensors"),
                                            folder.PathFor("other.safetensors")};
  for (const std::string& path : old) std::ofstream(path) << "x";
  for (const std::string& path : strange) std::ofstream(path) << "x";
  std::ofstream(old.back()) << R"({"weight_map": {
      "a": "m-00001-of-00003.safetensors", "b": "m-00002-of-00003.safetensors",
      "c": "other.safetensors"}})";
  Export(folder, 12, kTwoFiles);
  for (const std::string& path : {old[0], old[1]})
    EXPECT_FALSE(std::filesystem::exists(path)) << path;
  for (const std::string& path : {old[2], strange[0], strange[1]})
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
}

}  // namespace
}  // namespace weir::weights
