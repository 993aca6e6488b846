// Tests what is said and what is kept when the disk refuses to flush. The functions fsync and msync
// of this program stand in front of those of the C library and fail on demand.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/store/files_testing.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/whole_file.h"

namespace {

enum class Flush { kSucceeds, kOfFileFails, kOfFolderFails, kOfFolderIsUnknown, kOfMemoryFails };
Flush flush_mode = Flush::kSucceeds;

}  // namespace

extern "C" int fsync(int descriptor) {
  struct stat info;
  const bool folder = ::fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode);
  if (flush_mode == (folder ? Flush::kOfFolderFails : Flush::kOfFileFails)) {
    errno = EIO;
    return -1;
  }
  if (folder && flush_mode == Flush::kOfFolderIsUnknown) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int msync(void* address, size_t length, int flags) {
  if (flush_mode == Flush::kOfMemoryFails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_msync, address, length, flags));
}

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FailingDiskTest : public FilesTest {
 protected:
  FailingDiskTest() { folder_.Write("c", "old"); }
  ~FailingDiskTest() override { flush_mode = Flush::kSucceeds; }

  static absl::Status Replace(const std::string& path) {
    return WriteWholeFile(path, [](std::ostream& out) {
      out << "new";
      return absl::OkStatus();
    });
  }
  // Returns a writer of one tensor of two elements that have been written.
  static std::unique_ptr<SafetensorsWriter> WriterOf(const std::string& path) {
    auto writer = SafetensorsWriter::Create(path, {{"w", DType::kF32, {2}}}, {}).value();
    const std::vector<float> values = {1, 2};
    EXPECT_TRUE(writer->Write(0, values.data()).ok());
    return writer;
  }
};

TEST_F(FailingDiskTest, AFileThatCannotBeFlushedReplacesNothing) {
  flush_mode = Flush::kOfFileFails;
  const absl::Status whole = Replace(Path("c"));
  EXPECT_TRUE(IsCannotWrite(whole));
  EXPECT_THAT(
      std::string(whole.message()),
      AllOf(HasSubstr(Path("c")), HasSubstr("cannot flush: " + std::string(strerror(EIO)))));
  const absl::Status tensors = WriterOf(Path("c"))->Commit();
  EXPECT_TRUE(IsCannotWrite(tensors));
  EXPECT_THAT(std::string(tensors.message()), HasSubstr("cannot flush"));
  EXPECT_EQ(Text(Path("c")), "old");
}

TEST_F(FailingDiskTest, AFolderThatCannotBeFlushedIsSaidAndTheFileIsThere) {
  flush_mode = Flush::kOfFolderFails;
  const absl::Status whole = Replace(Path("c"));
  EXPECT_TRUE(IsCannotWrite(whole));
  EXPECT_THAT(std::string(whole.message()),
              AllOf(HasSubstr(Path("c")), HasSubstr("its folder cannot be flushed")));
  EXPECT_EQ(Text(Path("c")), "new");
  const absl::Status tensors = WriterOf(Path("t"))->Commit();
  EXPECT_TRUE(IsCannotWrite(tensors));
  EXPECT_THAT(std::string(tensors.message()), HasSubstr("its folder cannot be flushed"));
  EXPECT_TRUE(SafetensorsReader::Open(Path("t")).ok());
}

TEST_F(FailingDiskTest, AFileSystemThatCannotFlushFoldersIsNoError) {
  flush_mode = Flush::kOfFolderIsUnknown;
  EXPECT_TRUE(Replace(Path("c")).ok());
  EXPECT_EQ(Text(Path("c")), "new");
  EXPECT_TRUE(WriterOf(Path("t"))->Commit().ok());
}

TEST_F(FailingDiskTest, APartThatCannotBeFlushedNamesTheFileOfTheUser) {
  const std::unique_ptr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(Path("c"), {{"w", DType::kF32, {2}}}, {}).value();
  auto part = SafetensorsPart::Open(writer->temporary_path(), Path("c")).value();
  TensorSlice slice;
  slice.dtype = DType::kF32;
  slice.shape = slice.global_shape = {2};
  slice.offset = {0};
  const std::vector<float> values = {1, 2};
  ASSERT_TRUE(part->Write("w", slice, values.data()).ok());
  flush_mode = Flush::kOfMemoryFails;
  const absl::Status flushed = part->Flush();
  EXPECT_TRUE(IsCannotWrite(flushed));
  EXPECT_THAT(std::string(flushed.message()),
              AllOf(HasSubstr(Path("c")), HasSubstr("cannot flush a part")));
}

}  // namespace
}  // namespace weir::store
