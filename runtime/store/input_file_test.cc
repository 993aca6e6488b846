#include "runtime/store/input_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/idx_file.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/safetensors.h"

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PipeAt(const std::string& name) {
  const std::string path = TemporaryPath(name);
  ::unlink(path.c_str());
  EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  return path;
}

// Returns the status of every reader of files for `path`; no reader may wait.
std::vector<absl::Status> Readers(const std::string& path) {
  return {InputFile::Open(path, {.expected = "a file"}).status(),
          MappedFile::Open(path, "text").status(), ReadIdxFile(path, 1, "labels").status(),
          SafetensorsReader::Open(path).status()};
}

TEST(InputFileTest, OpensARegularFileAndKnowsItsSize) {
  const std::string path = TemporaryPath("regular");
  std::ofstream(path) << "12345";
  absl::StatusOr<InputFile> file = InputFile::Open(path, {});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 5);
  char bytes[8];
  EXPECT_EQ(::read(file->descriptor(), bytes, sizeof(bytes)), 5);
}

TEST(InputFileTest, APipeWithoutAWriterIsRefusedAtOnce) {
  for (const absl::Status& status : Readers(PipeAt("pipe"))) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("W0040"), HasSubstr("found a pipe")));
  }
}

TEST(InputFileTest, APipeBehindALinkIsRefusedToo) {
  const std::string link = TemporaryPath("link");
  ::unlink(link.c_str());
  ASSERT_EQ(::symlink(PipeAt("behind").c_str(), link.c_str()), 0);
  for (const absl::Status& status : Readers(link))
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a pipe"));
}

TEST(InputFileTest, DevicesSocketsAndFoldersAreRefusedByName) {
  for (const absl::Status& status : Readers("/dev/zero"))
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a device"));
  for (const absl::Status& status : Readers("/"))
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a folder"));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The path is relative, since a socket's path is short.
  ASSERT_EQ(::chdir(SharedTemporaryFolder().path().c_str()), 0);
  std::strcpy(address.sun_path, "socket");
  ::unlink(address.sun_path);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const absl::Status& status : Readers("socket"))
    EXPECT_THAT(std::string(status.message()), HasSubstr("found a socket"));
  ::close(socket);
}

TEST(InputFileTest, TheErrorSaysWhatItsCallerNamed) {
  const absl::Status status =
      InputFile::Open("/no/such",
                      {.code = "W0006", .expected = "a job file", .hint = "- reads a pipe"})
          .status();
  EXPECT_EQ(status.message(),
            "W0006 at /no/such: expected a job file; found No such file or directory. Try: - reads "
            "a pipe.");
}

}  // namespace
}  // namespace weir::store
