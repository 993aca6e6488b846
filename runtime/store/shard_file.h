// Writes the shards of one rank into a file of a checkpoint folder. The file is safetensors: any
// other program reads it, and sees each shard as a tensor. The writer calculates the checksums and
// content sums while the bytes pass, so that nothing is read back.
// Thread rule: one thread at a time for a writer; writers of different files run in parallel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/file_system.h"

namespace weir::store {

struct ShardEntry {
  std::string tensor;
  std::string dtype;  // as in safetensors
  Shape offset, shape, global_shape;

  static ShardEntry Of(const std::string& tensor, const TensorSlice& slice);
  int64_t bytes() const;
};

// Returns "rank-00003.safetensors".
std::string ShardFileName(int32_t rank);

class ShardWriter {
 public:
  struct Options {
    std::string folder;   // of PendingCheckpoint
    std::string file;     // ShardFileName
    std::string host;     // for the index; empty: all hosts share the disk
    int64_t step = 0;     // steps done when the states were copied
    std::string purpose;  // the final path, for messages
    std::string job_id;   // of the run that has the states; empty: not known
    FileSystem* files = MachineFiles();
  };
  // Makes the file, and reserves room for all entries. A tensor may be in `entries` once.
  // CannotWrite (pending_file.h) if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(const Options& options,
                                                             std::vector<ShardEntry> entries);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // The entries in their order in the file, in which the data must come.
  const std::vector<ShardEntry>& entries() const { return entries_; }
  int64_t data_bytes() const { return data_bytes_; }
  int64_t bytes_left() const { return data_bytes_ - appended_; }
  // Writes the next bytes of the data: the entries one after another, without gaps. A call may end
  // anywhere at an element, and may go on into the next entries. Blocks on the disk. CannotWrite if
  // the disk refuses.
  absl::Status Append(const void* data, int64_t bytes);
  // Flushes the file to disk. Precondition: bytes_left() == 0. Returns the record for the index.
  absl::StatusOr<ShardFileRecord> Finish();

 private:
  ShardWriter() = default;
  absl::Status WriteAt(int64_t position, const void* data, int64_t bytes);
  void AddSums(const char* data, int64_t bytes);

  Options options_;
  std::vector<ShardEntry> entries_;
  std::vector<uint32_t> seeds_;
  ShardFileRecord record_;
  std::unique_ptr<OpenedFile> file_;
  int64_t data_bytes_ = 0, appended_ = 0;
  size_t entry_ = 0;      // that the next byte belongs to
  int64_t in_entry_ = 0;  // bytes of it that have come
};

}  // namespace weir::store
