#include "tools/fleet/input_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/weight_index.h"

namespace weir::fleet {
namespace {

uint32_t SumOf(const std::string& bytes) {
  const uint64_t key = KeyOf(bytes.data(), bytes.size());
  return static_cast<uint32_t>(key ^ (key >> 32));
}

FileFingerprint FingerprintOfFile(const std::string& path) {
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
  print.sum = SumOf(bytes);
  return print;
}

FileFingerprint FingerprintOfIndex(const std::string& path) {
  FileFingerprint all = FingerprintOfFile(path);
  if (all.size < 0) return all;
  std::string prints;
  for (const std::string& file : store::FilesOfWeights(path)) {
    const FileFingerprint print = FingerprintOfFile(file);
    absl::StrAppend(&prints, print.size, " ", print.sum, "\n");
    if (file != path) all.size += std::max<int64_t>(print.size, 0);
  }
  all.sum = SumOf(prints);
  return all;
}

}  // namespace

FileFingerprint FingerprintOf(const std::string& path) {
  // The index of a checkpoint has checksums of all that the checkpoint holds.
  if (store::IsCheckpointFolder(path)) {
    const absl::StatusOr<std::string> folder = store::ResolveCheckpoint(path);
    if (!folder.ok()) return {};
    return FingerprintOf((std::filesystem::path(*folder) / store::kIndexFile).string());
  }
  if (store::IsWeightIndex(path)) return FingerprintOfIndex(path);
  return FingerprintOfFile(path);
}

std::string FingerprintText(const FileFingerprint& file) {
  return file.size < 0
             ? "no such file"
             : absl::StrCat(BytesText(static_cast<double>(file.size)), " (", file.size,
                            " bytes, checksum ", absl::Hex(file.sum, absl::kZeroPad8), ")");
}

absl::Status CheckSameFile(const FileFingerprint& own, OwnFile when,
                           const std::vector<FileOnHost>& on_hosts) {
  std::vector<Problem> problems;
  std::set<std::string> named;
  for (const FileOnHost& file : on_hosts) {
    if (file.found == own || !named.insert(file.host).second) continue;
    problems.push_back({"W0883", absl::StrCat(file.path, " on host '", file.host, "'"),
                        absl::StrCat("the file that the starter ",
                                     when == OwnFile::kNow ? "has: " : "had as the run began: ",
                                     FingerprintText(own)),
                        FingerprintText(file.found),
                        "copy the file to the host, or --ship, which sends the inputs"});
  }
  return problems.empty() ? absl::OkStatus()
                          : ErrorOfAll(absl::StatusCode::kInvalidArgument, problems);
}

std::vector<ShippedFile> FilesToShip(const std::string& path) {
  const bool is_folder = store::IsCheckpointFolder(path);
  std::vector<ShippedFile> files;
  for (const std::string& file :
       is_folder ? store::FilesOfCheckpoint(path) : store::FilesOfWeights(path)) {
    const std::string name = std::filesystem::path(file).filename().string();
    files.push_back({file, is_folder ? name : file == path ? "" : "../" + name});
  }
  return files;
}

std::string PathOfCopy(const ShippedFile& file, const std::string& to) {
  if (file.place.empty()) return to;
  return (std::filesystem::path(to) / file.place).lexically_normal().string();
}

std::string ShippedPath(const std::string& log_directory, const std::string& host, size_t index,
                        const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return absl::StrCat(log_directory, "/shipped/", host, "/", index,
                      store::IsWeightIndex(path) ? "/" : "-", name);
}

}  // namespace weir::fleet
