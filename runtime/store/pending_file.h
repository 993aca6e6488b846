// A PendingFile is a file that appears under its name as a whole or not at all. Until the file is
// published it has no name (O_TMPFILE), so that a kill of its maker leaves nothing behind. Where
// the file system has no such files, and for the moment in which the file replaces another file, it
// has the name <path>.partial-<16 hexadecimal digits> and its maker holds a lock on it. Create
// removes files of such names that are not locked, since their makers are dead.
//
// A symbolic link at the path is followed: the target of the link is replaced, and the link stays.
// A file that replaces another file has that file's mode; a new file has the mode 0666 less the
// umask. A PendingFile does not flush and knows nothing of the contents. Thread rule: one thread at
// a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::store {

class PendingFile {
 public:
  PendingFile() = default;
  ~PendingFile();  // gone, unless published
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  // Call Create once, first. Create, Publish and FlushFolder return 0 or errno.
  int Create(const std::string& path);
  // Tries whether a file can appear at `path`, and leaves nothing behind. A file that is there
  // stays as it is. Returns 0 or errno. A full disk passes: there may be room once the file is due.
  static int Try(const std::string& path);
  // Removes the files that dead makers have left beside the paths, whose links must have been
  // followed (FollowLinks). Create does so for its own path.
  static void RemoveLeftovers(const std::vector<std::string>& paths);
  // Replaces the file at the path. On failure the path is unchanged.
  int Publish();
  // Call after Publish: makes the name survive a power cut.
  int FlushFolder() const;

  int descriptor() const { return descriptor_; }  // to read and write
  // The path at which other processes of this user on this machine may open the file until it is
  // published.
  const std::string& open_path() const { return open_path_; }

 private:
  int Settle(const std::string& path);
  int Make();
  int CreateNamed();
  int GiveName();

  std::string path_;  // links followed
  std::string open_path_;
  std::string name_;                     // the temporary one, or empty
  std::optional<mode_t> replaced_mode_;  // of the file at the path; nullopt: there is none
  int descriptor_ = -1;
};

// Removes the file at the path, whose links it follows, so that the removal survives a power cut.
// Returns errno, or 0, also if there is no file.
int RemovePublished(const std::string& path);

// Returns W0046 (kNotFound): the reason why `path` could not be written, and advice about `error`.
absl::Status CannotWrite(const std::string& path, const std::string& what, int error);
// Returns whether a status is of CannotWrite, perhaps reported by another process.
bool IsCannotWrite(const absl::Status& status);

}  // namespace weir::store
