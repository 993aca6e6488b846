// The shards of a committed checkpoint, for one who reads any elements of its tensors.
//
// Every byte is checked before it is returned: the index says which CRC32C each chunk of a shard
// has, and a chunk is read and checked once, when somebody needs a byte of it. Files are opened
// when they are needed, so a host that has only its own shards reads those. Thread rule: any
// thread reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/file_system.h"

namespace weir::store {

// A shard of a tensor, by its place in the index.
struct ShardPlace {
  size_t file = 0;    // of index().files
  size_t number = 0;  // of the shards of that file
};

class CheckpointShards {
 public:
  // Opens the checkpoint that `path` names (ResolveCheckpoint) and checks its index, but no data.
  // `files` must outlive the object.
  // Errors: those of ResolveCheckpoint, ReadIndex and CheckOwners. kDataLoss: the step of the index
  // is not that of its folder or of its files (W0717), or a file is of another run than the index
  // (W0967).
  static absl::StatusOr<std::unique_ptr<CheckpointShards>> Open(const std::string& path,
                                                                FileSystem* files = MachineFiles());

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }
  // Precondition: the index has the tensor.
  const std::vector<ShardPlace>& ShardsOf(const std::string& tensor) const;
  const ShardRecord& shard(const ShardPlace& place) const {
    return index_.files[place.file].shards[place.number];
  }

  // Returns the bytes [begin, begin + count) of a shard, which stay as long as this object. Blocks
  // on the disk. kNotFound (W0712): the file is not in the folder; the error names the host that
  // has it. kDataLoss: the bytes, or the size or the header of the file, are damaged (W0713), and
  // the error names the tensor or the header; or the file is of another run than the index (W0967).
  absl::StatusOr<const uint8_t*> Bytes(const ShardPlace& place, int64_t begin, int64_t count) const;

  // Checks that each file that should be on this host is there and has its size and its header.
  // Reads no data.
  // Errors as of Bytes. A file that the index places on another host may be absent.
  absl::Status CheckSizes() const;
  // Reads a whole file, and checks every chunk. Errors as of Bytes.
  absl::Status CheckFile(size_t file) const;
  // Adds up the elements of a tensor. kDataLoss (W0715): the content sum is not that of the index.
  // Errors as of Bytes.
  absl::Status CheckContent(const std::string& tensor) const;

  // Returns how many bytes of shards have been read, each chunk counted once.
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct Chunks {
    // is_checked tells of each chunk whether it has been checked, for all shards one after another.
    // The flags order nothing, because the file does not change.
    std::unique_ptr<std::atomic<bool>[]> is_checked;
    std::vector<size_t> first;  // of each shard, in is_checked
  };

  explicit CheckpointShards(FileSystem* files) : files_(files) {}
  // Returns the bytes of a file that has its size and its header.
  absl::StatusOr<const FileBytes*> OpenFile(size_t file) const;
  std::string PathOf(size_t file) const;

  std::string folder_;
  CheckpointIndex index_;
  std::map<std::string, std::vector<ShardPlace>> places_;
  std::vector<Chunks> chunks_;  // of each file
  mutable Mutex mutex_;
  // The bytes of each file: none until the file is needed, and then kept for good.
  mutable std::vector<FileBytes> opened_ ABSL_GUARDED_BY(mutex_);
  mutable std::atomic<int64_t> bytes_read_{0};  // a count, orders nothing
  FileSystem* const files_;
};

}  // namespace weir::store
