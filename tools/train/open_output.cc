#include "tools/train/open_output.h"

#include <errno.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir::train {
namespace {

// NFS gives an open file such a name when somebody removes the file, and removes it at its close.
constexpr char kRemovedOnNfs[] = ".nfs";

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

OpenOutput FindOpenOutput(int descriptor, const std::string& path) {
  OpenOutput output;
  struct stat open, named;
  if (::fstat(descriptor, &open) != 0) return output;
  if (open.st_nlink == 0) {
    output.place = OpenOutput::Place::kGone;
    return output;
  }
  const bool is_named = ::stat(path.c_str(), &named) == 0;
  if (is_named ? IsSame(open, named) : errno != ENOENT && errno != ENOTDIR) return output;
  output.place = OpenOutput::Place::kElsewhere;
  std::error_code error;
  const std::string now =
      std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", descriptor), error).string();
  if (error || ::stat(now.c_str(), &named) != 0 || !IsSame(open, named)) return output;
  if (absl::StartsWith(std::filesystem::path(now).filename().string(), kRemovedOnNfs)) {
    output.place = OpenOutput::Place::kGone;
  } else {
    output.path = now;
  }
  return output;
}

bool LostOutput::KeepsFile(const OpenOutput& file, int error, std::optional<int64_t> last_step,
                           int64_t step, std::string* news) {
  const bool is_gone = file.place == OpenOutput::Place::kGone;
  const bool keeps = error != 0 && !is_gone;
  const bool is_told = std::exchange(is_elsewhere_, keeps) && keeps;
  if (!last_step.has_value() || is_told) return keeps;
  *news = absl::StrCat("WARNING: ", output_, ": somebody has ",
                       is_gone ? "removed or replaced" : "renamed",
                       " the file that the run writes. What it had up to step ", *last_step,
                       is_gone             ? " is lost, unless somebody has a copy"
                       : file.path.empty() ? " is only in the renamed file"
                                           : absl::StrCat(" is only in ", file.path));
  if (error == 0) {
    absl::StrAppend(news, "; step ", step, " and later ones go into the file at the path");
  } else if (keeps) {
    absl::StrAppend(news, ", and later steps, too, until a file can be opened at the path");
  }
  return keeps;
}

}  // namespace weir::train
