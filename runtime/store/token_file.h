// A TokenFile is a file of token ids, one after another. Forms of files:
//
//   bytes      each byte is a token
//   u16, u32   little-endian numbers, without a header
//   llm.c      a header of 256 numbers, of which the first tells u16 or u32
//   npy        an array of NumPy with one dimension: u8, u16, u32, i32 or i64
//   Megatron   FILE.bin, with FILE.idx beside it that tells u8, u16, i32 or i64
//
// DataFilesOf (tools/job/data_paths.h) knows of the second file, too.
// Thread rule: immutable after Open; any thread reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/store/watched_file.h"

namespace weir::store {

// kFound: what the file's header says; a file without one is refused.
enum class TokenType : uint8_t { kFound, kU8, kU16, kU32 };

class TokenFile {
 public:
  // kNotFound: no such file. kInvalidArgument (W0909): no header, and `type` is kFound; a header of
  // an unknown version or type; a type that is not the header's; a size that is no whole number of
  // tokens. `purpose` goes into errors.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                         const std::string& purpose,
                                                         TokenType type);

  int64_t size() const { return size_; }  // tokens
  const std::string& path() const { return file_->path(); }
  const std::string& form() const { return form_; }  // "u16", "llm.c u16", "bytes"

  // Reads tokens [begin, begin + count), which must lie within size(). kInvalidArgument (W0051): a
  // value that is not from 0 to below 2^31. kDataLoss: see WatchedFile.
  absl::Status ReadAt(int64_t begin, int64_t count, int32_t* out) const;

  // Returns the first token from `begin` on that is not in a hole of a sparse file, at most size().
  // All tokens before it are 0.
  int64_t SkipHole(int64_t begin) const;

 private:
  TokenFile() = default;

  std::unique_ptr<WatchedFile> file_;
  std::string form_;
  int64_t header_bytes_ = 0;
  int64_t width_ = 1;  // bytes of a token
  int64_t size_ = 0;
};

}  // namespace weir::store
