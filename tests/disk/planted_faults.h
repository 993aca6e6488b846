// PlantedFaults are a FileSystem that does some operations of a checkpoint too late or not at all,
// as code with a bug would. A simulation that does not notice them would not notice the bug either.
// Without a crash every one of them works. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/store/file_system.h"

namespace weir::disk {

enum class Planted : uint8_t {
  kNothing,
  kShardsNotFlushed,
  kIndexNotFlushed,
  kPartialFolderNotFlushed,   // the names of index and shards
  kCommitNotFlushed,          // the final name of the folder, before `latest` and removals
  kLatestNotFlushed,          // the bytes of `latest`
  kLatestNameNotFlushed,      // before older checkpoints are removed
  kOuterFolderNotFlushed,     // the name of the folder of all checkpoints
  kRemovedBeforeItsName,      // files of a checkpoint, before its new name is on disk
  kSweptBeforeItsName,        // likewise, of a leftover
  kCommittedBeforeItsShards,  // the rename, before the last shards are written
  kLatestBeforeTheCommit,
  kLatestInPlace,  // written over, not replaced by a rename
};
inline constexpr int kNumPlanted = static_cast<int>(Planted::kLatestInPlace) + 1;
const char* Name(Planted planted);

class PlantedFaults final : public store::FileSystem {
 public:
  // `disk` must outlive this object. The folder of checkpoints is "/data/run".
  PlantedFaults(store::FileSystem* disk, Planted planted) : disk_(disk), planted_(planted) {}

  int Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) override;
  int MakeFolder(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Exchange(const std::string& a, const std::string& b) override;
  int RemoveFile(const std::string& path) override;
  int RemoveFolder(const std::string& path) override { return disk_->RemoveFolder(path); }
  Kind KindOf(const std::string& path) override { return disk_->KindOf(path); }
  std::vector<std::string> NamesIn(const std::string& path) override;
  absl::StatusOr<store::FileBytes> Map(const std::string& path,
                                       const std::string& purpose) override {
    return disk_->Map(path, purpose);
  }
  std::string NewToken() override { return disk_->NewToken(); }

 private:
  friend class FaultyFile;
  // The last thing that was done to names.
  enum class Last : uint8_t { kOther, kCommit, kLatest, kRemoved, kListed };

  bool SkipsFlush(const std::string& path) const;

  store::FileSystem* const disk_;
  const Planted planted_;
  Last last_ = Last::kOther;
  std::vector<std::function<int()>> later_;  // what a commit does when it is too late
};

}  // namespace weir::disk
