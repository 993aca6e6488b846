#include "tests/disk/process_files.h"

#include <errno.h>

#include <utility>

#include "runtime/base/status.h"

namespace weir::disk {

class ProcessFile final : public store::OpenedFile {
 public:
  ProcessFile(ProcessFiles* process, std::unique_ptr<store::OpenedFile> file)
      : process_(process), file_(std::move(file)) {}

  int TryLock(Lock lock) override {
    const int error = process_->Begin();
    return error != 0 ? error : file_->TryLock(lock);
  }
  int Reserve(int64_t bytes) override {
    const int error = process_->Begin();
    return error != 0 ? error : file_->Reserve(bytes);
  }
  int WriteAt(int64_t position, const void* data, int64_t bytes) override {
    const bool was_killed = process_->is_killed();
    const int error = process_->Begin();
    if (error != 0) {
      if (!was_killed && bytes > 1) file_->WriteAt(position, data, bytes / 2);
      return error;
    }
    return file_->WriteAt(position, data, bytes);
  }
  int Flush() override {
    const int error = process_->Begin();
    return error != 0 ? error : file_->Flush();
  }
  bool IsAt(const std::string& path) override { return file_->IsAt(path); }

 private:
  ProcessFiles* const process_;
  const std::unique_ptr<store::OpenedFile> file_;
};

int ProcessFiles::Begin() {
  if (left_ > 0 && --left_ == 0) is_killed_ = true;
  return is_killed_ ? EIO : 0;
}

int ProcessFiles::Wrap(int error, std::unique_ptr<store::OpenedFile>* file) {
  if (error == 0) *file = std::make_unique<ProcessFile>(this, std::move(*file));
  return error;
}

int ProcessFiles::Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  const int error = Begin();
  return error != 0 ? error : Wrap(disk_->Create(path, file), file);
}

int ProcessFiles::Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  const int error = Begin();
  return error != 0 ? error : Wrap(disk_->Open(path, file), file);
}

int ProcessFiles::MakeFolder(const std::string& path) {
  const int error = Begin();
  return error != 0 ? error : disk_->MakeFolder(path);
}

int ProcessFiles::Rename(const std::string& from, const std::string& to) {
  const int error = Begin();
  return error != 0 ? error : disk_->Rename(from, to);
}

int ProcessFiles::Exchange(const std::string& a, const std::string& b) {
  const int error = Begin();
  return error != 0 ? error : disk_->Exchange(a, b);
}

int ProcessFiles::RemoveFile(const std::string& path) {
  const int error = Begin();
  return error != 0 ? error : disk_->RemoveFile(path);
}

int ProcessFiles::RemoveFolder(const std::string& path) {
  const int error = Begin();
  return error != 0 ? error : disk_->RemoveFolder(path);
}

store::FileSystem::Kind ProcessFiles::KindOf(const std::string& path) {
  return Begin() != 0 ? Kind::kNone : disk_->KindOf(path);
}

std::vector<std::string> ProcessFiles::NamesIn(const std::string& path) {
  return Begin() != 0 ? std::vector<std::string>() : disk_->NamesIn(path);
}

absl::StatusOr<store::FileBytes> ProcessFiles::Map(const std::string& path,
                                                   const std::string& purpose) {
  if (Begin() != 0) return absl::UnavailableError("the process is killed");
  return disk_->Map(path, purpose);
}

}  // namespace weir::disk
