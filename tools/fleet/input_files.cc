#include "tools/fleet/input_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"

namespace weir::fleet {
namespace {

std::string Describe(const FileFingerprint& file) {
  return file.size < 0
             ? "no such file"
             : absl::StrCat(BytesText(static_cast<double>(file.size)), " (", file.size,
                            " bytes, checksum ", absl::Hex(file.crc, absl::kZeroPad8), ")");
}

}  // namespace

FileFingerprint FingerprintOf(const std::string& path) {
  // The index of a checkpoint has checksums of all that the checkpoint holds.
  if (store::IsCheckpointFolder(path)) {
    const absl::StatusOr<std::string> folder = store::ResolveCheckpoint(path);
    if (!folder.ok()) return {};
    return FingerprintOf((std::filesystem::path(*folder) / store::kIndexFile).string());
  }
  FileFingerprint print;
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path, error)) return print;
  print.size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  const int64_t blocks =
      (print.size + FileFingerprint::kBlockBytes - 1) / FileFingerprint::kBlockBytes;
  const int64_t read = std::min(blocks, FileFingerprint::kBlocksMax);
  std::string bytes;
  for (int64_t i = 0; i < read; ++i) {
    // The first and the last block are among them.
    const int64_t block = read == 1 ? 0 : i * (blocks - 1) / (read - 1);
    const size_t before = bytes.size();
    bytes.resize(before + static_cast<size_t>(FileFingerprint::kBlockBytes));
    file.clear();
    file.seekg(block * FileFingerprint::kBlockBytes);
    file.read(bytes.data() + before, FileFingerprint::kBlockBytes);
    bytes.resize(before + static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  }
  print.crc = Crc32c(bytes.data(), bytes.size());
  return print;
}

absl::Status CheckSameFile(const FileFingerprint& own, const std::vector<FileOnHost>& on_hosts) {
  std::vector<Problem> problems;
  std::set<std::string> named;
  for (const FileOnHost& file : on_hosts) {
    if (file.found == own || !named.insert(file.host).second) continue;
    problems.push_back({"W0883", absl::StrCat(file.path, " on host '", file.host, "'"),
                        absl::StrCat("the file that the starter has: ", Describe(own)),
                        Describe(file.found),
                        "copy the file to the host, or --ship, which sends the inputs"});
  }
  return problems.empty() ? absl::OkStatus()
                          : ErrorOfAll(absl::StatusCode::kInvalidArgument, problems);
}

std::vector<ShippedFile> FilesToShip(const std::string& path) {
  if (!store::IsCheckpointFolder(path)) return {{path, ""}};
  std::vector<ShippedFile> files;
  for (const std::string& file : store::FilesOfCheckpoint(path))
    files.push_back({file, "/" + std::filesystem::path(file).filename().string()});
  return files;
}

std::string ShippedPath(const std::string& log_directory, const std::string& host, size_t index,
                        const std::string& path) {
  return absl::StrCat(log_directory, "/shipped/", host, "/", index, "-",
                      std::filesystem::path(path).filename().string());
}

}  // namespace weir::fleet
