// A file that appears under its name as a whole or not at all. Until it is published it has no name
// (O_TMPFILE), so that whatever kills its maker leaves nothing behind. Where the file system knows
// no such files, and for the moment in which it replaces another, it has the name
// <path>.partial-<16 hexadecimal digits> and its maker holds a lock on it: Create removes files of
// such names on which nobody holds a lock, since their makers are dead.
//
// A symbolic link at the path is followed: the file that it leads to is replaced, the link stays. A
// file that replaces another has its mode; a new one has what the umask leaves of 0666. It is not
// flushed here and knows nothing of what is in it. Thread rule: one thread at a time.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace weir {

class PendingFile {
 public:
  PendingFile() = default;
  ~PendingFile();  // gone, unless published
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  // Once, first. All return 0 or errno.
  int Create(const std::string& path);
  // Replaces what lies at the path. On failure nothing has changed there.
  int Publish();
  // Afterwards: makes the name outlive a power cut.
  int FlushFolder() const;

  int descriptor() const { return descriptor_; }  // to read and write
  // Where other processes of this user on this machine may open it, until it is published.
  const std::string& open_path() const { return open_path_; }

 private:
  int CreateNamed();
  int GiveName();
  void RemoveLeftovers() const;

  std::string path_;  // links followed
  std::string open_path_;
  std::string name_;  // the temporary one, or empty
  int descriptor_ = -1;
};

// W0046 (kNotFound): what kept `path` from being written, and what to try about `error`.
absl::Status CannotWrite(const std::string& path, const std::string& what, int error);
// Whether a status is of CannotWrite, perhaps told by another process.
bool IsCannotWrite(const absl::Status& status);

// 0 if a file can be made at `path` or what lies there can be replaced, as far as its folder tells;
// else errno.
int CheckPlace(const std::string& path);

}  // namespace weir
