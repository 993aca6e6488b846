#include "tools/hosts/host_files.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/control/outcome.h"

namespace weir::hosts {
namespace {

using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

proto::FetchOrder OrderOf(const std::string& path, int64_t bytes_max) {
  proto::FetchOrder order;
  order.set_request(7);
  order.set_path(path);
  order.set_bytes_max(bytes_max);
  return order;
}

proto::ShipOrder PieceOf(const std::string& path, int64_t offset, const std::string& bytes,
                         bool is_last) {
  proto::ShipOrder piece;
  piece.set_request(9);
  piece.set_path(path);
  piece.set_offset(offset);
  piece.set_bytes(bytes);
  piece.set_is_last(is_last);
  return piece;
}

TEST(HostFilesTest, AFileIsFetchedInPieces) {
  const TemporaryFolder folder;
  const std::string path = absl::StrCat(folder.path(), "/part");
  const std::string content = absl::StrCat(std::string(1'500'000, 'x'), "end");
  std::ofstream(path, std::ios::binary) << content;
  FetchedFile file(OrderOf(path, 1'500'003));
  std::string fetched;
  int reports = 0;
  while (const std::optional<proto::FetchReport> report = file.Next()) {
    EXPECT_EQ(report->request(), 7);
    fetched += report->bytes();
    ++reports;
    if (report->is_last()) {
      EXPECT_TRUE(control::FromOutcome(report->outcome()).ok());
    }
  }
  EXPECT_TRUE(fetched == content);
  EXPECT_EQ(reports, 3);
}

TEST(HostFilesTest, AFileThatIsTooLargeOrNotThereIsNotFetched) {
  const TemporaryFolder folder;
  const std::string path = absl::StrCat(folder.path(), "/part");
  std::ofstream(path) << "1234";
  const std::optional<proto::FetchReport> large = FetchedFile(OrderOf(path, 3)).Next();
  EXPECT_TRUE(large->is_last());
  EXPECT_THAT(std::string(control::FromOutcome(large->outcome()).message()),
              HasSubstr("has 4 bytes, more than the 3 wanted"));
  const std::optional<proto::FetchReport> none = FetchedFile(OrderOf(folder.path(), 3)).Next();
  EXPECT_EQ(control::FromOutcome(none->outcome()).code(), absl::StatusCode::kNotFound);
}

TEST(HostFilesTest, AShippedFileAppearsWhenItIsComplete) {
  const TemporaryFolder folder;
  const std::string path = absl::StrCat(folder.path(), "/deep/er/data");
  ShippedFile file;
  EXPECT_FALSE(file.Take(PieceOf(path, 0, "one ", false)).has_value());
  struct stat facts = {};
  EXPECT_NE(::stat(path.c_str(), &facts), 0) << "it has no name yet";
  const std::optional<proto::ShipReport> report = file.Take(PieceOf(path, 4, "two", true));
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(control::FromOutcome(report->outcome()).ok());
  EXPECT_EQ(ContentOf(path), "one two");
}

TEST(HostFilesTest, AFileThatCannotBeMadeIsReportedOnce) {
  const TemporaryFolder folder;
  const std::string file_as_folder = absl::StrCat(folder.path(), "/file");
  std::ofstream(file_as_folder) << "x";
  ShippedFile file;
  const std::string path = absl::StrCat(file_as_folder, "/data");
  const std::optional<proto::ShipReport> report = file.Take(PieceOf(path, 0, "one", false));
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(control::FromOutcome(report->outcome()).ok());
  EXPECT_FALSE(file.Take(PieceOf(path, 3, "two", true)).has_value());
}

}  // namespace
}  // namespace weir::hosts
