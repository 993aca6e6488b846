// A file that appears under its name as a whole or not at all. Until it is published it has no name
// (O_TMPFILE), so that whatever kills its maker leaves nothing behind; where the file system knows no such
// files it lies beside its place as <path>.partial-xxxxxx.
// It is not flushed here and knows nothing of what is in it.
// Thread rule: one thread at a time.
#pragma once

#include <string>

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

  int descriptor() const { return descriptor_; }  // to read and write
  // Where other processes of this user on this machine may open it, until it is published.
  const std::string& open_path() const { return open_path_; }

 private:
  int CreateNamed();
  int GiveName();

  std::string path_;
  std::string open_path_;
  std::string name_;  // the temporary one, or empty
  int descriptor_ = -1;
};

}  // namespace weir
