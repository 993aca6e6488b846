// A PathLock is the right of one process to write the files that belong to a path. It is a lock on
// the empty file <path>.lock, which goes away with the object. The lock ends with its process in
// any case: the next holder takes over a file that a killed process leaves, unless that file is of
// another user who lets nobody open it, or on NFS nobody write to it. On a file system without
// locks, any number of processes have the right.
// A folder of checkpoints is locked itself (FolderClaim), as is a file that grows (metrics_file.h);
// a file that is replaced as a whole cannot be. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace weir::store {

class PathLock {
 public:
  // kNotFound (W0961): another process has the right; the error names the process. CannotWrite:
  // the file <path>.lock cannot be made, opened or locked.
  static absl::StatusOr<std::unique_ptr<PathLock>> Take(const std::string& path);
  ~PathLock();
  PathLock(const PathLock&) = delete;
  PathLock& operator=(const PathLock&) = delete;

  // Returns false if the file system has no locks, so that another process may write as well.
  bool excludes_others() const { return excludes_others_; }

 private:
  PathLock(std::string file, int descriptor, bool excludes_others)
      : file_(std::move(file)), descriptor_(descriptor), excludes_others_(excludes_others) {}

  const std::string file_;
  const int descriptor_;
  const bool excludes_others_;
};

}  // namespace weir::store
