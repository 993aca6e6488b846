// Weights on disk in the safetensors format: eight bytes of header length, a JSON header (name ->
// dtype, shape, data_offsets), then the tensors, row-major.
//
// The reader opens tensors wherever they lie, under one interface: in a file, in the files of an
// index (weight_index.h), or in the shards of a checkpoint folder (checkpoint_folder.h). The reader
// trusts nothing: a file is either wholly consistent (no gap, no overlap, ends where the last
// tensor ends, shape and dtype agree with the offsets) or kDataLoss with the file, the tensor and
// the offsets named; bytes of a checkpoint folder are checked when they are read. The writer makes
// one file and is atomic: the path has the whole new file or is unchanged.
//
// Files of the writer carry checksums in the metadata, which other programs ignore: "crc32c:NAME"
// is the CRC32C of the bytes of tensor NAME, "crc32c" is that of the first eight bytes and the
// header with its own digits taken as 0. Each checksum has eight hexadecimal digits. A file has all
// checksums or none, and all files of an index have them or none has. Thread rule: a reader is
// immutable, any thread; a writer belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/checkpoint_shards.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/pending_file.h"

namespace weir::store {

// The largest legal header, as in other implementations of the format.
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct StoredTensor {
  std::string dtype;  // as in the file: "F32", "BF16", "F16", "I32", …
  Shape shape;
  // The fields below are 0 in a checkpoint folder, whose tensors lie in shards.
  int64_t begin = 0;  // bytes from the start of the file
  int64_t end = 0;
  int file = 0;                // 0, or the file of the index
  std::string stored_as = {};  // the name in the file; empty: the name under which it is read
};

// The elements of a stored tensor, in row-major order, for one who reads them in another order or
// from several places. Depends on its reader.
class StoredElements {
 public:
  // Copies `count` elements to `out`, the first from position `first` and each next one `stride`
  // positions further. Precondition: all positions are in the tensor. Errors: those of
  // CheckpointShards::Bytes.
  absl::Status Copy(int64_t first, int64_t stride, int64_t count, void* out) const;

 private:
  friend class SafetensorsReader;
  void CopyFrom(const uint8_t* data, int64_t first, int64_t stride, int64_t count, void* out) const;
  absl::Status CopyBox(const TensorSlice& slice, void* out) const;

  const uint8_t* data_ = nullptr;  // null: the elements lie in shards
  const CheckpointShards* shards_ = nullptr;
  const std::string* name_ = nullptr;  // of the tensor, in shards
  const Shape* shape_ = nullptr;       // likewise
  DType stored_ = DType::kF32;         // of the file, if it is another one
  int64_t width_ = 0;                  // its bytes
  DType dtype_ = DType::kF32;          // of the copies
  bool same_ = false;                  // no conversion
};

class SafetensorsReader {
 public:
  // Opens a file, all files of an index (weight_index.h), or a checkpoint folder, of which it reads
  // only the index. kNotFound: no file, or see CheckStepIsThere. kDataLoss: damaged, see above; or
  // the tensors of the files are not those of the index, or weights of two steps (W0047); or states
  // of two steps (W0717) or of two runs (W0967), or with two cursors (W0718) or two values of a
  // random key (W0719); or an error of CheckpointShards::Open.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // The metadata of a file without checksums, or what all files of an index have in common. Of a
  // checkpoint folder, the facts of its index (checkpoint_metadata.h).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Returns the CRC32C of the headers of all files, one after another; 0 of a checkpoint folder.
  uint32_t header_sum() const;
  // Null unless the path names a checkpoint folder.
  const CheckpointShards* shards() const { return shards_.get(); }

  // From now on, whoever reads `tensor` gets the elements of `other`, with its type and shape.
  // Precondition: both are in tensors().
  void ReadInPlaceOf(const std::string& tensor, const std::string& other);

  // Reads the whole file once, or all files of an index. kDataLoss (W0960) if a checksum is wrong,
  // or is missing while the file or another file of the index has some, with the tensor named. Of a
  // checkpoint folder it reads all shards; errors as of CheckpointShards::Bytes.
  enum class Checked : uint8_t { kSound, kHasNoChecksums };
  absl::StatusOr<Checked> CheckSums() const;

  // Copies the part `slice` of tensor `name` to `out` (slice.bytes()), and converts between F32,
  // BF16 and F16 if slice.dtype requires it. kNotFound: no such tensor. kInvalidArgument: the
  // file's shape is not slice.global_shape, or the dtypes do not convert. In a checkpoint folder it
  // touches only the chunks that have elements of the slice; errors as of CheckpointShards::Bytes.
  absl::Status Read(const std::string& name, const TensorSlice& slice, void* out) const;

  // Returns the elements of tensor `name` as `dtype`. Errors as Read, but for the shape.
  absl::StatusOr<StoredElements> ElementsOf(const std::string& name, DType dtype) const;
  // Returns whether two tensors have one type, one shape and the same bytes. Precondition: both are
  // in tensors(). Errors: those of CheckpointShards::Bytes.
  absl::StatusOr<bool> SameBytes(const std::string& a, const std::string& b) const;

 private:
  struct File {
    std::unique_ptr<MappedFile> bytes;
    std::map<std::string, std::string> metadata;
    int64_t header_end = 0;  // where data begins
  };

  explicit SafetensorsReader(std::string path) : path_(std::move(path)) {}
  // Adds a file and its tensors.
  absl::Status AddFile(const std::string& path);
  absl::Status AddIndex();
  // Checks that all files are of one step and of one run, and keeps the metadata that they have in
  // common.
  absl::Status TakeMetadata();
  absl::Status CheckRuns() const;
  // Checks that all files of a checkpoint have one cursor, and the same random keys and seals.
  absl::Status CheckCursors() const;
  absl::Status AddShards();
  // Precondition: some file has checksums.
  absl::Status CheckSumsOf(int file) const;

  const std::string path_;
  std::vector<File> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unique_ptr<const CheckpointShards> shards_;  // null: no checkpoint folder
};

class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
  };

  // Begins a file that appears at `path` once committed, and otherwise disappears (pending_file.h).
  // Names must be unique and not "__metadata__".
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<Entry> entries,
      const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::string& path() const { return path_; }
  // Tensors in their order in the file; Write accepts any order.
  const std::vector<Entry>& entries() const { return entries_; }
  // Writes the whole of entry `index`. Blocks on the disk.
  absl::Status Write(size_t index, const void* data);
  // A SafetensorsPart writes to temporary_path(). NotePart records that the part has written
  // `elements` of the tensor `name`.
  const std::string& temporary_path() const { return file_.open_path(); }
  absl::Status NotePart(const std::string& name, int64_t elements);
  // Every element must have been written once. Reads the file back for its checksums, and flushes
  // it to disk. The path is unchanged, and nothing can be written any more.
  absl::Status Seal();
  // Seals the file unless that is done, then replaces the file at path().
  absl::Status Commit();
  // Returns the sum of the header that Seal has written (SafetensorsReader::header_sum).
  uint32_t header_sum() const { return header_sum_; }

 private:
  SafetensorsWriter() = default;
  absl::Status WriteAt(int64_t position, const void* data, int64_t bytes);
  absl::Status WriteChecksums();

  std::string path_;
  std::map<std::string, std::string> metadata_;
  PendingFile file_;
  std::vector<Entry> entries_;
  std::vector<int64_t> positions_;  // of each entry, from the start of the file
  std::vector<int64_t> written_;    // elements of each entry
  bool is_sealed_ = false;
  uint32_t header_sum_ = 0;
};

// A SafetensorsPart writes shards into a file that a SafetensorsWriter, of this process or another,
// has begun: each holder of shards writes its own. Room for the whole file was reserved when the
// file was made.
// Thread rule: one thread.
class SafetensorsPart {
 public:
  // `temporary_path` is that of the writer; `path` is the name of the file in messages. Errors as
  // SafetensorsReader::Open.
  static absl::StatusOr<std::unique_ptr<SafetensorsPart>> Open(const std::string& temporary_path,
                                                               const std::string& path);
  ~SafetensorsPart();
  SafetensorsPart(const SafetensorsPart&) = delete;
  SafetensorsPart& operator=(const SafetensorsPart&) = delete;

  // Writes the part `slice` of tensor `name` from `data` (slice.bytes()). kInternal if the file has
  // no such tensor of this type and shape.
  absl::Status Write(const std::string& name, const TensorSlice& slice, const void* data);
  // Returns when all written bytes are on disk.
  absl::Status Flush();

 private:
  SafetensorsPart() = default;

  std::string path_;
  std::map<std::string, StoredTensor> tensors_;
  char* data_ = nullptr;  // the file, mapped
  int64_t size_ = 0;
};

}  // namespace weir::store
