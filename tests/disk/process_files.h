// ProcessFiles are a disk as one process sees it. When the process is killed, its operations have
// no effect from then on, and a write that was under way has a part of its effect. The disk and
// what other processes do there go on. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/store/file_system.h"

namespace weir::disk {

class ProcessFiles final : public store::FileSystem {
 public:
  // `disk` must outlive this object, and this object the files that it opens.
  explicit ProcessFiles(store::FileSystem* disk) : disk_(disk) {}

  // The process ends now, or at the operation number `operation` from now, of which the next is 1.
  void Kill() { is_killed_ = true; }
  void KillIn(int64_t operation) { left_ = operation; }
  bool is_killed() const { return is_killed_; }

  int Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int MakeFolder(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Exchange(const std::string& a, const std::string& b) override;
  int RemoveFile(const std::string& path) override;
  int RemoveFolder(const std::string& path) override;
  Kind KindOf(const std::string& path) override;
  std::vector<std::string> NamesIn(const std::string& path) override;
  absl::StatusOr<store::FileBytes> Map(const std::string& path,
                                       const std::string& purpose) override;
  std::string NewToken() override { return disk_->NewToken(); }

 private:
  friend class ProcessFile;

  // Counts an operation. Returns 0 if it takes place, else EIO.
  int Begin();
  int Wrap(int error, std::unique_ptr<store::OpenedFile>* file);

  store::FileSystem* const disk_;
  bool is_killed_ = false;
  int64_t left_ = 0;  // operations up to the one at which the process ends; 0: there is none
};

}  // namespace weir::disk
