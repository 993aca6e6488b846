#include "runtime/store/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"

namespace weir::store {
namespace {

namespace fs = std::filesystem;

class MachineFile final : public OpenedFile {
 public:
  explicit MachineFile(int descriptor) : descriptor_(descriptor) {}
  ~MachineFile() override { ::close(descriptor_); }

  int TryLock(Lock lock) override {
    const int kind = lock == Lock::kShared ? LOCK_SH : LOCK_EX;
    return ::flock(descriptor_, kind | LOCK_NB) == 0 ? 0 : errno;
  }
  int Reserve(int64_t bytes) override { return ::posix_fallocate(descriptor_, 0, bytes); }
  int WriteAt(int64_t position, const void* data, int64_t bytes) override {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(descriptor_, from, static_cast<size_t>(bytes), position);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return done < 0 ? errno : ENOSPC;
      from += done;
      position += done;
      bytes -= done;
    }
    return 0;
  }
  int Flush() override {
    if (::fsync(descriptor_) == 0) return 0;
    const int error = errno;
    struct stat info;
    // Some file systems cannot flush a folder, and say so by EINVAL.
    const bool is_folder = ::fstat(descriptor_, &info) == 0 && S_ISDIR(info.st_mode);
    return is_folder && error == EINVAL ? 0 : error;
  }
  bool IsAt(const std::string& path) override {
    struct stat here, there;
    if (::stat(path.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
    // ESTALE: another host has removed this one.
    if (::fstat(descriptor_, &here) != 0) return errno != ESTALE;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
  }
  std::string PresentPath() override {
    std::error_code error;
    std::string path =
        fs::read_symlink(absl::StrCat("/proc/self/fd/", descriptor_), error).string();
    // The kernel also gives a path of a folder that is removed, or that this host cannot see.
    const bool is_there = !error && !path.empty() && path[0] == '/' && fs::exists(path, error);
    return is_there && IsAt(path) ? path : "";
  }

 private:
  const int descriptor_;
};

class MachineFileSystem final : public FileSystem {
 public:
  int Create(const std::string& path, std::unique_ptr<OpenedFile>* file) override {
    return OpenAs(path, O_WRONLY | O_CREAT | O_TRUNC, file);
  }
  int Open(const std::string& path, std::unique_ptr<OpenedFile>* file) override {
    return OpenAs(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, file);
  }
  int MakeFolder(const std::string& path) override {
    return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno;
  }
  int Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  int Exchange(const std::string& a, const std::string& b) override {
    const int done = ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
    if (done == 0) return 0;
    return errno == ENOSYS ? EINVAL : errno;
  }
  int RemoveFile(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? 0 : errno;
  }
  int RemoveFolder(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? 0 : errno;
  }
  Kind KindOf(const std::string& path) override {
    std::error_code error;
    switch (fs::status(path, error).type()) {
      case fs::file_type::regular: return Kind::kFile;
      case fs::file_type::directory: return Kind::kFolder;
      case fs::file_type::none:
      case fs::file_type::not_found: return Kind::kNone;
      default: return Kind::kOther;
    }
  }
  std::vector<std::string> NamesIn(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      names.push_back(it->path().filename().string());
    return names;
  }
  absl::StatusOr<FileBytes> Map(const std::string& path, const std::string& purpose) override {
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path, purpose));
    return FileBytes{file->data(), file->size(), file};
  }
  std::string NewToken() override {
    uint64_t bits = 0;
    (void)!::getrandom(&bits, sizeof(bits), 0);
    return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
  }

 private:
  static int OpenAs(const std::string& path, int flags, std::unique_ptr<OpenedFile>* file) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (descriptor < 0) return errno;
    *file = std::make_unique<MachineFile>(descriptor);
    return 0;
  }
};

}  // namespace

FileSystem* MachineFiles() {
  static MachineFileSystem files;
  return &files;
}

int FlushFolder(FileSystem* files, const std::string& path) {
  std::unique_ptr<OpenedFile> folder;
  if (const int error = files->Open(path + "/", &folder)) return error == EACCES ? 0 : error;
  return folder->Flush();
}

int RemoveTree(FileSystem* files, const std::string& path) {
  const int error = files->RemoveFile(path);
  if (error == ENOENT) return 0;
  if (error != EISDIR) return error;
  for (const std::string& name : files->NamesIn(path)) {
    if (const int failed = RemoveTree(files, absl::StrCat(path, "/", name))) return failed;
  }
  return files->RemoveFolder(path);
}

}  // namespace weir::store
