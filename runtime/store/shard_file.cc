#include "runtime/store/shard_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/content_sum.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/stored_dtype.h"

namespace weir::store {
namespace {

// Returns the eight bytes of length and the header. `begins` gets where each entry begins in the
// data.
std::string HeaderOf(const std::vector<ShardEntry>& entries, int64_t step,
                     const std::string& job_id, std::vector<int64_t>* begins) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "weir shard"}, {kStepKey, absl::StrCat(step)}};
  if (!job_id.empty()) header["__metadata__"][kJobIdKey] = job_id;
  int64_t offset = 0;
  for (const ShardEntry& entry : entries) {
    const int64_t end = offset + entry.bytes();
    header[entry.tensor] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, end}}};
    begins->push_back(offset);
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

ShardEntry ShardEntry::Of(const std::string& tensor, const TensorSlice& slice) {
  return {tensor, StoredName(slice.dtype), slice.offset, slice.shape, slice.global_shape};
}

int64_t ShardEntry::bytes() const { return NumElements(shape) * StoredWidth(dtype); }

std::string ShardFileName(int32_t rank) { return absl::StrFormat("rank-%05d.safetensors", rank); }

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(const Options& options,
                                                                 std::vector<ShardEntry> entries) {
  std::set<std::string> names = {"__metadata__"};
  for (const ShardEntry& entry : entries) {
    if (names.insert(entry.tensor).second && StoredWidth(entry.dtype) > 0 && entry.bytes() >= 0 &&
        entry.offset.size() == entry.shape.size() &&
        entry.global_shape.size() == entry.shape.size())
      continue;
    return absl::InternalError(
        absl::StrCat("tensor ", entry.tensor, " cannot be stored: name used twice or bad shape"));
  }
  // Wide elements first, so that every shard is aligned.
  std::stable_sort(entries.begin(), entries.end(), [](const ShardEntry& a, const ShardEntry& b) {
    return StoredWidth(a.dtype) > StoredWidth(b.dtype);
  });
  auto writer = std::unique_ptr<ShardWriter>(new ShardWriter());
  writer->options_ = options;
  std::vector<int64_t> begins;
  const std::string header = HeaderOf(entries, options.step, options.job_id, &begins);
  ShardFileRecord& record = writer->record_;
  record.name = options.file;
  record.host = options.host;
  record.step = options.step;
  record.job_id = options.job_id;
  record.header_bytes = static_cast<int64_t>(header.size());
  record.header_sum = Crc32c(header.data(), header.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const ShardEntry& entry = entries[i];
    const int64_t begin = record.header_bytes + begins[i];
    record.shards.push_back({entry.tensor,
                             entry.dtype,
                             entry.offset,
                             entry.shape,
                             begin,
                             begin + entry.bytes(),
                             {},
                             0});
    writer->data_bytes_ += entry.bytes();
    writer->seeds_.push_back(ContentSeed(entry.tensor));
  }
  record.bytes = record.header_bytes + writer->data_bytes_;
  writer->entries_ = std::move(entries);
  const std::string path = absl::StrCat(options.folder, "/", options.file);
  if (const int error = options.files->Create(path, &writer->file_))
    return CannotWrite(path, "cannot make it", error);
  if (const int error = writer->file_->Reserve(record.bytes))
    return CannotWrite(path, absl::StrCat("no room for ", record.bytes, " bytes"), error);
  WEIR_RETURN_IF_ERROR(writer->WriteAt(0, header.data(), record.header_bytes));
  return writer;
}

absl::Status ShardWriter::WriteAt(int64_t position, const void* data, int64_t bytes) {
  const int error = file_->WriteAt(position, data, bytes);
  if (error == 0) return absl::OkStatus();
  return CannotWrite(absl::StrCat(options_.folder, "/", options_.file),
                     absl::StrCat("write failed after byte ", position), error);
}

// Precondition: the bytes belong to the current entry.
void ShardWriter::AddSums(const char* data, int64_t bytes) {
  const ShardEntry& entry = entries_[entry_];
  ShardRecord& shard = record_.shards[entry_];
  const int64_t width = StoredWidth(entry.dtype);
  shard.content += AddContent(seeds_[entry_], width, entry.global_shape, entry.offset, entry.shape,
                              in_entry_ / width, bytes / width, data);
  while (bytes > 0) {
    const int64_t in_chunk = in_entry_ % record_.chunk_bytes;
    if (in_chunk == 0) shard.chunk_sums.push_back(0);
    const int64_t taken = std::min(bytes, record_.chunk_bytes - in_chunk);
    shard.chunk_sums.back() =
        ExtendCrc32c(shard.chunk_sums.back(), data, static_cast<size_t>(taken));
    data += taken;
    in_entry_ += taken;
    bytes -= taken;
  }
}

absl::Status ShardWriter::Append(const void* data, int64_t bytes) {
  if (bytes < 0 || bytes > bytes_left())
    return absl::InternalError(
        absl::StrCat(record_.name, " gets more bytes than its entries have"));
  const char* from = static_cast<const char*>(data);
  WEIR_RETURN_IF_ERROR(WriteAt(record_.header_bytes + appended_, from, bytes));
  appended_ += bytes;
  while (bytes > 0) {
    while (in_entry_ == entries_[entry_].bytes()) {
      ++entry_;
      in_entry_ = 0;
    }
    const int64_t taken = std::min(bytes, entries_[entry_].bytes() - in_entry_);
    if (taken % StoredWidth(entries_[entry_].dtype) != 0)
      return absl::InternalError(absl::StrCat(record_.name, " gets a part of an element"));
    AddSums(from, taken);
    from += taken;
    bytes -= taken;
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardFileRecord> ShardWriter::Finish() {
  if (bytes_left() != 0) {
    return absl::InternalError(
        absl::StrCat(record_.name, " lacks ", bytes_left(), " of its ", data_bytes_, " bytes"));
  }
  if (const int error = file_->Flush())
    return CannotWrite(absl::StrCat(options_.folder, "/", options_.file), "cannot flush", error);
  return record_;
}

}  // namespace weir::store
