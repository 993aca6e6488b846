// A FileSystem is the set of file operations that checkpoints are written and read with. There are
// two: that of this machine, and one in memory that loses power on demand (tests/disk). So what a
// crash leaves of a checkpoint follows from the operations that checkpoints use, and a test tries
// every crash.
//
// Any file system keeps this over a loss of power:
//
//   bytes of a file             once its Flush has returned
//   a name in a folder          once the Flush of the folder has returned
//   both without a Flush        perhaps, in part, and in any order
//
// A FileSystem is not for inputs of users (input_file.h) and not for files that other programs read
// while they are written (pending_file.h). Operations return 0 or errno, unless they say otherwise.
// Thread rule: any thread; an OpenedFile has one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::store {

// The bytes of a file, which stay as long as `owner`.
struct FileBytes {
  const uint8_t* data = nullptr;
  int64_t size = 0;
  std::shared_ptr<const void> owner;
};

// A file that is open for writing, or a folder. The destructor closes it, which ends its lock.
class OpenedFile {
 public:
  enum class Lock : uint8_t { kShared, kExclusive };

  virtual ~OpenedFile() = default;
  // Takes a lock without waiting. EWOULDBLOCK: another process has one that excludes it. A lock
  // ends with the process. Another error: the file system has no locks.
  virtual int TryLock(Lock lock) = 0;
  // Makes the file `bytes` long, and takes the room for them.
  virtual int Reserve(int64_t bytes) = 0;
  // Writes all the bytes. After an error any part of them may be in the file.
  virtual int WriteAt(int64_t position, const void* data, int64_t bytes) = 0;
  // Returns 0 for a folder if the file system cannot flush folders.
  virtual int Flush() = 0;
  // Returns false if `path` leads to another file or folder than this one, or to none: somebody has
  // renamed this one. Follows symbolic links. A file system that gives no answer counts as
  // unchanged.
  virtual bool IsAt(const std::string& path) = 0;
  // Returns an absolute path that leads to this file or folder now, also after somebody has renamed
  // it. "": somebody has removed it, or the file system does not know its path.
  virtual std::string PresentPath() { return ""; }
};

class FileSystem {
 public:
  enum class Kind : uint8_t { kNone, kFile, kFolder, kOther };

  virtual ~FileSystem() = default;
  // Opens an empty file for writing, in place of the contents of a file at `path`.
  virtual int Create(const std::string& path, std::unique_ptr<OpenedFile>* file) = 0;
  // Opens a file or folder that is there, to lock or to flush. ELOOP: a symbolic link is at `path`,
  // unless a slash follows it.
  virtual int Open(const std::string& path, std::unique_ptr<OpenedFile>* file) = 0;
  virtual int MakeFolder(const std::string& path) = 0;  // EEXIST: something is there
  // Gives a file or folder another name. A file, and a folder that is empty, at `to` disappears.
  virtual int Rename(const std::string& from, const std::string& to) = 0;
  // Exchanges two names in one step. EINVAL: the file system cannot do that.
  virtual int Exchange(const std::string& a, const std::string& b) = 0;
  virtual int RemoveFile(const std::string& path) = 0;  // EISDIR: a folder is there
  virtual int RemoveFolder(const std::string& path) = 0;
  // Follows symbolic links.
  virtual Kind KindOf(const std::string& path) = 0;
  // Returns the names in a folder in any order; none if it cannot be read.
  virtual std::vector<std::string> NamesIn(const std::string& path) = 0;
  // Returns the bytes of a file as MappedFile does. `purpose` goes into errors.
  virtual absl::StatusOr<FileBytes> Map(const std::string& path, const std::string& purpose) = 0;
  // Returns 16 hexadecimal digits that no other call on any machine returns.
  virtual std::string NewToken() = 0;
};

// Returns the file system of this machine, which has no state of its own.
FileSystem* MachineFiles();

// Flushes the names in a folder. EACCES counts as done if the user may write into the folder but
// not read it: then nobody can flush it.
int FlushFolder(FileSystem* files, const std::string& path);
// Removes a file, or a folder with all that is in it. A symbolic link is removed, and not what it
// points to. Returns 0 if nothing is there.
int RemoveTree(FileSystem* files, const std::string& path);

}  // namespace weir::store
