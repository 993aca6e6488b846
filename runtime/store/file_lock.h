// Helpers of those who hold or respect a lock of flock(2). On NFS a file can be locked only by
// whoever has opened it for writing, and a folder cannot be locked at all.
// Thread rule: pure functions over the file system.
#pragma once

#include <string>

namespace weir::store {

// Opens a file to lock it: for writing where the file and its file system allow that, otherwise for
// reading. `flags` are those of open(2) besides the access; a file that is made has the mode 0666
// less the umask. Does not follow a link. Returns the descriptor; -1: errno tells the error.
int OpenToLock(const std::string& file, int flags);

// Returns whether an error of flock(2) says that the file system has no locks, or has none for a
// file that is open for reading only.
bool HasNoLocks(int error);

// Returns " (pid 123)" for the process that holds a lock on the file or folder; "" if the system
// does not tell.
std::string LockHolderText(const std::string& file);

}  // namespace weir::store
