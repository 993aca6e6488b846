#include "runtime/store/names_beside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir::store {
namespace {

constexpr int kLinksMax = 40;  // as the kernel follows
constexpr size_t kDigits = 16;

}  // namespace

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

int FollowLinks(std::string* path) {
  for (int i = 0; i < kLinksMax; ++i) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path->c_str(), target, sizeof(target));
    if (length < 0) return errno == EINVAL || errno == ENOENT ? 0 : errno;
    const std::string to(target, static_cast<size_t>(length));
    *path = absl::StartsWith(to, "/") ? to : FolderOf(*path) + to;
  }
  return ELOOP;
}

std::vector<std::string> WithTargets(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (std::string path : paths) {
    all.push_back(path);
    if (FollowLinks(&path) == 0 && path != all.back()) all.push_back(std::move(path));
  }
  return all;
}

int FlushFolderOf(const std::string& path) {
  const int folder = ::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  // Some file systems cannot flush a folder, and say so by EINVAL.
  const int error = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  return error;
}

int NewNameBeside(const std::string& path, const std::string& mark, std::string* name) {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) < 0) return errno;
  *name = absl::StrCat(path, mark, absl::Hex(bits, absl::kZeroPad16));
  return 0;
}

std::string PathOfNameBeside(const std::string& name, const std::string& mark) {
  if (name.size() <= mark.size() + kDigits) return "";
  const size_t end = name.size() - kDigits - mark.size();
  const bool has_digits = std::all_of(name.end() - kDigits, name.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  return has_digits && name.compare(end, mark.size(), mark) == 0 ? name.substr(0, end) : "";
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = ::readdir(entries)) names.emplace_back(entry->d_name);
  ::closedir(entries);
  return names;
}

std::vector<std::string> WeightIndicesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : NamesIn(folder)) {
    if (absl::EndsWith(name, ".safetensors.index.json"))
      paths.push_back((std::filesystem::path(folder) / name).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<NameBeside> NamesBeside(const std::vector<std::string>& paths,
                                    const std::string& mark) {
  std::map<std::string, std::map<std::string, size_t>> wanted;  // places in `paths`, by folder
  for (size_t p = 0; p < paths.size(); ++p) {
    const std::string base = paths[p].substr(paths[p].rfind('/') + 1);  // npos + 1 is 0
    if (!base.empty()) wanted[FolderOf(paths[p])].emplace(base, p);
  }
  std::vector<std::pair<size_t, std::string>> found;
  for (const auto& [folder, places] : wanted) {
    for (const std::string& name : NamesIn(folder)) {
      const auto it = places.find(PathOfNameBeside(name, mark));
      if (it != places.end()) found.emplace_back(it->second, folder + name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<NameBeside> names;
  for (auto& [place, name] : found) names.push_back({paths[place], std::move(name)});
  return names;
}

}  // namespace weir::store
