#include "runtime/store/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/real.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/safetensors_header.h"
#include "runtime/store/shared_runs.h"
#include "runtime/store/slice_runs.h"
#include "runtime/store/stored_dtype.h"
#include "runtime/store/weight_index.h"

namespace weir::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Returns the name that a tensor, which is read as `name`, has in the file.
const std::string& StoredAs(const std::string& name, const StoredTensor& tensor) {
  return tensor.stored_as.empty() ? name : tensor.stored_as;
}

// Stored data need not be aligned.
void ConvertReals(DType from, const uint8_t* data, int64_t count, DType to, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) SetRealAt(to, out, i, RealAt(from, data, i));
}

absl::Status DamagedFile(const std::string& path, const std::string& expected,
                         const std::string& found) {
  return Damaged({"W0042", path, expected, found, "copy or write the file again"});
}

// Returns the bytes of the tensor, or -1 if its dtype or shape makes no sense.
int64_t BytesFor(const std::string& dtype, const Shape& shape) {
  int64_t elements = NumElements(shape), width = StoredWidth(dtype);
  if (elements < 0 || width == 0 || elements > INT64_MAX / width) return -1;
  return elements * width;
}

absl::Status CheckTensor(const std::string& path, const SafetensorsHeader::Tensor& tensor,
                         int64_t data_bytes) {
  std::string where = absl::StrCat(path, ", tensor ", tensor.name);
  std::string offsets =
      absl::StrCat("data_offsets [", tensor.offsets[0], ", ", tensor.offsets[1], "]");
  if (StoredWidth(tensor.dtype) == 0)
    return DamagedFile(where, "a known dtype", "\"" + tensor.dtype + "\"");
  if (tensor.offsets[0] > tensor.offsets[1] || tensor.offsets[1] > data_bytes) {
    return DamagedFile(
        where, absl::StrCat("offsets in order and within ", data_bytes, " bytes of data"), offsets);
  }
  int64_t bytes = BytesFor(tensor.dtype, tensor.shape);
  if (bytes != tensor.offsets[1] - tensor.offsets[0]) {
    return DamagedFile(
        where,
        bytes < 0 ? std::string("a shape of possible size")
                  : absl::StrCat(bytes, " bytes for ", tensor.dtype, ToText(tensor.shape)),
        bytes < 0 ? ToText(tensor.shape)
                  : absl::StrCat(offsets, ", ", tensor.offsets[1] - tensor.offsets[0], " bytes"));
  }
  return absl::OkStatus();
}

// Checks that the tensors, laid end to end in order of offset, cover the data exactly.
absl::Status CheckCoverage(const std::string& path,
                           const std::vector<SafetensorsHeader::Tensor>& tensors,
                           int64_t data_bytes) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].offsets < tensors[b].offsets; });
  int64_t covered = 0;
  std::string previous = "the header";
  for (size_t i : order) {
    const auto& tensor = tensors[i];
    if (tensor.offsets[0] != covered) {
      return DamagedFile(
          absl::StrCat(path, ", tensor ", tensor.name),
          absl::StrCat("data to begin at ", covered, ", where ", previous, " ends"),
          absl::StrCat(tensor.offsets[0] < covered ? "an overlap" : "a gap", ": data_offsets [",
                       tensor.offsets[0], ", ", tensor.offsets[1], "]"));
    }
    covered = tensor.offsets[1];
    previous = tensor.name;
  }
  if (covered != data_bytes) {
    return DamagedFile(
        path,
        absl::StrCat("the file to end with its last tensor, after ", covered, " bytes of data"),
        absl::StrCat(data_bytes, " bytes of data"));
  }
  return absl::OkStatus();
}

// The keys and the form of checksums in the metadata.
constexpr char kHeaderSum[] = "crc32c";
constexpr char kNoSum[] = "00000000";
std::string SumKey(const std::string& tensor) { return absl::StrCat(kHeaderSum, ":", tensor); }
std::string SumText(uint32_t sum) { return absl::StrCat(absl::Hex(sum, absl::kZeroPad8)); }

// Returns the sum of the header with the sum's own digits taken as 0. The digits stand where the
// only unescaped text of this form is; the result is empty if there is no such text.
std::string HeaderSum(std::string header) {
  const std::string key = absl::StrCat("\"", kHeaderSum, "\":\"");
  const size_t at = header.find(key);
  if (at == std::string::npos || at + key.size() + 8 > header.size()) return "";
  header.replace(at + key.size(), 8, kNoSum);
  const uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  return SumText(Crc32c(header.data(), header.size()));
}

bool IsSumKey(const std::string& key) {
  return key == kHeaderSum || absl::StartsWith(key, SumKey(""));
}

bool HasSums(const Metadata& metadata) {
  return std::any_of(metadata.begin(), metadata.end(),
                     [](const auto& entry) { return IsSumKey(entry.first); });
}

// Returns of which step the tensors of a file are, for people.
std::string StepText(const Metadata& metadata) {
  const std::optional<int64_t> step = StepsBehind(metadata);
  if (!step.has_value()) return "no step";
  return absl::StrCat(IsOfCheckpoint(metadata) ? "states of step " : "weights of step ", *step);
}

// Returns "samples 48", or "no samples".
std::string EntryText(const Metadata& metadata, const std::string& key) {
  const auto entry = metadata.find(key);
  return entry == metadata.end() ? "no " + key : absl::StrCat(key, " ", entry->second);
}

absl::Status WrongSum(const std::string& where, const std::string& expected,
                      const std::string& found) {
  return Damaged(
      {"W0960", where, expected, found,
       "another copy or an earlier checkpoint: this file has changed since it was written"});
}

std::string HeaderText(const std::vector<SafetensorsWriter::Entry>& entries,
                       const std::map<std::string, std::string>& metadata,
                       std::vector<int64_t>* positions) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& entry : entries) {
    int64_t end = offset + NumElements(entry.shape) * SizeOf(entry.dtype);
    header[entry.name] = {{"dtype", StoredName(entry.dtype)},
                          {"shape", entry.shape},
                          {"data_offsets", {offset, end}}};
    positions->push_back(offset);
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  auto reader = std::unique_ptr<SafetensorsReader>(new SafetensorsReader(path));
  if (IsCheckpointFolder(path)) {
    WEIR_RETURN_IF_ERROR(reader->AddShards());
  } else if (IsWeightIndex(path)) {
    WEIR_RETURN_IF_ERROR(reader->AddIndex());
  } else if (IsLatestFile(path)) {
    return Rejected({"W0711", path, "a checkpoint, or the folder of a run",
                     "the file that names the newest checkpoint of its folder",
                     "the folder around it"});
  } else {
    WEIR_RETURN_IF_ERROR(CheckStepIsThere(path));
    WEIR_RETURN_IF_ERROR(CheckIsNotOfSeveral(path));
    WEIR_RETURN_IF_ERROR(reader->AddFile(path));
    WEIR_RETURN_IF_ERROR(reader->TakeMetadata());
  }
  return reader;
}

absl::Status SafetensorsReader::AddIndex() {
  WEIR_ASSIGN_OR_RETURN(const WeightIndex index, ReadWeightIndex(path_));
  for (const std::string& path : index.files) WEIR_RETURN_IF_ERROR(AddFile(path));
  for (const auto& [name, file] : index.file_of) {
    const auto tensor = tensors_.find(name);
    if (tensor != tensors_.end() && tensor->second.file == file) continue;
    return Damaged({"W0047", absl::StrCat(path_, ", tensor ", name),
                    absl::StrCat("the tensor in ", index.files[file], ", as the index says"),
                    tensor == tensors_.end()
                        ? "no such tensor"
                        : absl::StrCat("the tensor in ", index.files[tensor->second.file]),
                    "copy the folder again"});
  }
  for (const auto& [name, tensor] : tensors_) {
    if (index.file_of.count(name) > 0) continue;
    return Damaged({"W0047", absl::StrCat(index.files[tensor.file], ", tensor ", name),
                    absl::StrCat("tensors of the index ", path_, " only"), "another one",
                    "copy the folder again"});
  }
  return TakeMetadata();
}

absl::Status SafetensorsReader::CheckRuns() const {
  const File* named = nullptr;  // the first file that names its run
  for (const File& file : files_) {
    const std::string found = RunOf(file.metadata);
    if (found.empty() || !IsOfCheckpoint(file.metadata)) continue;
    if (named == nullptr) named = &file;
    const std::string expected = RunOf(named->metadata);
    if (!AreOfTwoRuns(expected, found)) continue;
    return Damaged({"W0967", path_, "files that are all of one run",
                    absl::StrCat(named->bytes->path(), " of run ", expected, " and ",
                                 file.bytes->path(), " of run ", found),
                    "the export again, or a copy of the whole folder: states of two runs do not "
                    "fit together"});
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::CheckCursors() const {
  const File& first = files_[0];
  if (!IsOfCheckpoint(first.metadata)) return absl::OkStatus();
  for (const File& file : files_) {
    Metadata either = first.metadata;
    either.insert(file.metadata.begin(), file.metadata.end());
    for (const auto& [key, text] : either) {
      const MetadataPart part = PartOf(key);
      if (part == MetadataPart::kOther) continue;
      const std::string expected = EntryText(first.metadata, key);
      const std::string found = EntryText(file.metadata, key);
      if (found == expected) continue;
      const bool is_cursor = part == MetadataPart::kCursor;
      return Damaged(
          {is_cursor ? "W0718" : "W0719", path_,
           is_cursor ? "files that all have one data cursor"
                     : "files that all have the same random keys",
           absl::StrCat(first.bytes->path(), " with ", expected, " and ", file.bytes->path(),
                        " with ", found, ", which contradict each other"),
           "the export again, or a copy of the whole folder"});
    }
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::TakeMetadata() {
  if (files_.empty()) return absl::OkStatus();
  const File& first = files_[0];
  metadata_ = first.metadata;
  std::erase_if(metadata_, [](const auto& entry) { return IsSumKey(entry.first); });
  for (const File& file : files_) {
    const std::string expected = StepText(first.metadata), found = StepText(file.metadata);
    if (found != expected) {
      const bool are_states = IsOfCheckpoint(first.metadata) && IsOfCheckpoint(file.metadata);
      return Damaged({are_states ? "W0717" : "W0047", path_, "files that are all of one step",
                      absl::StrCat(first.bytes->path(), " with ", expected, " and ",
                                   file.bytes->path(), " with ", found),
                      "the export again, or a copy of the whole folder: states of two steps do not "
                      "fit together"});
    }
    std::erase_if(metadata_, [&file](const auto& entry) {
      const auto it = file.metadata.find(entry.first);
      return it == file.metadata.end() || it->second != entry.second;
    });
  }
  WEIR_RETURN_IF_ERROR(CheckRuns());
  return CheckCursors();
}

uint32_t SafetensorsReader::header_sum() const {
  uint32_t sum = 0;
  for (const File& file : files_)
    sum = ExtendCrc32c(sum, file.bytes->data(), static_cast<size_t>(file.header_end));
  return sum;
}

absl::Status SafetensorsReader::AddShards() {
  WEIR_ASSIGN_OR_RETURN(shards_, CheckpointShards::Open(path_));
  const CheckpointFacts& facts = shards_->index().facts;
  bool is_checkpoint = facts.cursor.has_value();
  for (const auto& [name, tensor] : shards_->index().tensors) {
    tensors_[name] = {tensor.dtype, tensor.shape};
    if (tensor.owner != StateOwner::kWeight) is_checkpoint = true;
  }
  metadata_ =
      is_checkpoint ? CheckpointMetadataOf(facts) : WeightsMetadataOf(facts.job, facts.step);
  if (!is_checkpoint && facts.step == 0) metadata_.erase(kTrainedStepsKey);
  return absl::OkStatus();
}

absl::Status SafetensorsReader::AddFile(const std::string& path) {
  File added;
  WEIR_ASSIGN_OR_RETURN(added.bytes, MappedFile::Open(path, "safetensors weights"));
  const MappedFile& file = *added.bytes;
  if (file.size() < 8) {
    return DamagedFile(path, "at least the 8 bytes of the header length",
                       absl::StrCat(file.size(), " bytes"));
  }
  uint64_t length;
  memcpy(&length, file.data(), 8);
  if (length > static_cast<uint64_t>(kSafetensorsHeaderBytesMax)) {
    return DamagedFile(path,
                       absl::StrCat("a header of at most ", kSafetensorsHeaderBytesMax, " bytes"),
                       absl::StrCat("a header length of ", length));
  }
  int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file.size() - 8) {
    return DamagedFile(path, absl::StrCat("a header of ", header_bytes, " bytes"),
                       absl::StrCat("only ", file.size() - 8, " bytes after its length"));
  }
  WEIR_ASSIGN_OR_RETURN(
      SafetensorsHeader header,
      ParseSafetensorsHeader(path, reinterpret_cast<const char*>(file.data()) + 8, header_bytes));
  int64_t data_begin = 8 + header_bytes, data_bytes = file.size() - data_begin;
  for (const auto& tensor : header.tensors)
    WEIR_RETURN_IF_ERROR(CheckTensor(path, tensor, data_bytes));
  WEIR_RETURN_IF_ERROR(CheckCoverage(path, header.tensors, data_bytes));
  // Moved, because a file may have very many tensors.
  for (auto& tensor : header.tensors) {
    StoredTensor stored{std::move(tensor.dtype), std::move(tensor.shape),
                        data_begin + tensor.offsets[0], data_begin + tensor.offsets[1],
                        static_cast<int>(files_.size())};
    if (tensors_.emplace(tensor.name, std::move(stored)).second) continue;
    return Damaged({"W0047", absl::StrCat(path, ", tensor ", tensor.name),
                    "each tensor in one file of the index", "the tensor in two", ""});
  }
  added.metadata = std::move(header.metadata);
  added.header_end = data_begin;
  files_.push_back(std::move(added));
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsReader::Checked> SafetensorsReader::CheckSums() const {
  if (shards_ != nullptr) {
    for (size_t i = 0; i < shards_->index().files.size(); ++i)
      WEIR_RETURN_IF_ERROR(shards_->CheckFile(i));
    return Checked::kSound;
  }
  const auto with_sums = std::find_if(files_.begin(), files_.end(),
                                      [](const File& file) { return HasSums(file.metadata); });
  if (with_sums == files_.end()) return Checked::kHasNoChecksums;
  // The headers tell it before any values are read.
  for (const auto& [name, tensor] : tensors_) {
    const File& file = files_[tensor.file];
    if (HasSums(file.metadata)) continue;
    return WrongSum(
        absl::StrCat(file.bytes->path(), ", tensor ", StoredAs(name, tensor)),
        absl::StrCat("a checksum, as the tensors of ", with_sums->bytes->path(), " have"), "none");
  }
  for (size_t i = 0; i < files_.size(); ++i) WEIR_RETURN_IF_ERROR(CheckSumsOf(static_cast<int>(i)));
  return Checked::kSound;
}

void SafetensorsReader::ReadInPlaceOf(const std::string& tensor, const std::string& other) {
  StoredTensor instead = tensors_.at(other);
  if (instead.stored_as.empty()) instead.stored_as = other;
  tensors_.at(tensor) = std::move(instead);
}

absl::Status SafetensorsReader::CheckSumsOf(int i) const {
  const File& file = files_[i];
  const std::map<std::string, std::string>& metadata = file.metadata;
  const auto check = [&metadata](const std::string& key, const std::string& where,
                                 const std::string& sum) -> absl::Status {
    const auto it = metadata.find(key);
    if (it != metadata.end() && it->second == sum) return absl::OkStatus();
    return WrongSum(where,
                    it == metadata.end() ? "a checksum, as other parts of the file have"
                                         : "bytes with CRC32C " + it->second,
                    it == metadata.end() ? "none" : "bytes with CRC32C " + sum);
  };
  const auto* bytes = reinterpret_cast<const char*>(file.bytes->data());
  WEIR_RETURN_IF_ERROR(
      check(kHeaderSum, file.bytes->path() + ", header",
            HeaderSum(std::string(bytes + 8, static_cast<size_t>(file.header_end - 8)))));
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.file != i) continue;
    const std::string& stored = StoredAs(name, tensor);
    WEIR_RETURN_IF_ERROR(check(
        SumKey(stored), absl::StrCat(file.bytes->path(), ", tensor ", stored),
        SumText(Crc32c(bytes + tensor.begin, static_cast<size_t>(tensor.end - tensor.begin)))));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredElements> SafetensorsReader::ElementsOf(const std::string& name,
                                                             DType dtype) const {
  auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    std::vector<std::string> names;
    for (const auto& [other, tensor] : tensors_) names.push_back(other);
    std::string nearest = Nearest(name, names);
    return Missing({"W0043", path(), "a tensor named " + name, "none",
                    nearest.empty() ? "" : "the nearest name is " + nearest});
  }
  const StoredTensor& tensor = it->second;
  StoredElements elements;
  elements.same_ = tensor.dtype == StoredName(dtype);
  if (!elements.same_ && !(IsStoredReal(tensor.dtype) && IsReal(dtype))) {
    return Rejected({"W0045", absl::StrCat(path(), ", tensor ", name),
                     absl::StrCat("a dtype that converts to ", Name(dtype)), tensor.dtype,
                     "save the tensor as F32, BF16 or F16"});
  }
  if (shards_ == nullptr) elements.data_ = files_[tensor.file].bytes->data() + tensor.begin;
  elements.shards_ = shards_.get();
  elements.name_ = &StoredAs(it->first, tensor);
  elements.shape_ = &tensor.shape;
  elements.stored_ = DTypeFromStoredName(tensor.dtype).value_or(dtype);
  elements.width_ = StoredWidth(tensor.dtype);
  elements.dtype_ = dtype;
  return elements;
}

void StoredElements::CopyFrom(const uint8_t* data, int64_t first, int64_t stride, int64_t count,
                              void* out) const {
  uint8_t* to = static_cast<uint8_t*>(out);
  const uint8_t* from = data + first * width_;
  const int64_t out_width = SizeOf(dtype_);
  if (stride == 1 && same_) {
    memcpy(to, from, static_cast<size_t>(count * width_));
  } else if (stride == 1) {
    ConvertReals(stored_, from, count, dtype_, to);
  } else if (same_ && width_ == 4) {
    for (int64_t i = 0; i < count; ++i) memcpy(to + 4 * i, from + 4 * stride * i, 4);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const element = from + width_ * stride * i;
      if (same_) {
        memcpy(to + out_width * i, element, static_cast<size_t>(width_));
      } else {
        ConvertReals(stored_, element, 1, dtype_, to + out_width * i);
      }
    }
  }
}

absl::Status StoredElements::Copy(int64_t first, int64_t stride, int64_t count, void* out) const {
  if (data_ != nullptr) {
    CopyFrom(data_, first, stride, count, out);
    return absl::OkStatus();
  }
  // The elements of a row lie side by side in a shard for as long as both last.
  const int64_t out_width = SizeOf(dtype_);
  const std::vector<ShardPlace>& places = shards_->ShardsOf(*name_);
  size_t last = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t position = first + done * stride;
    std::optional<ShardRun> run;
    for (size_t tried = 0; tried < places.size() && !run.has_value(); ++tried) {
      const size_t i = (last + tried) % places.size();
      const ShardRecord& shard = shards_->shard(places[i]);
      run = FindRun(*shape_, shard.offset, shard.shape, position);
      if (run.has_value()) last = i;
    }
    // Checked: each element has an owner.
    if (!run.has_value()) return absl::InternalError("no shard has an element of " + *name_);
    const int64_t taken = std::min(count - done, stride == 1 ? run->count : 1);
    WEIR_ASSIGN_OR_RETURN(const uint8_t* const bytes,
                          shards_->Bytes(places[last], run->first * width_, taken * width_));
    CopyFrom(bytes, 0, 1, taken, static_cast<uint8_t*>(out) + done * out_width);
    done += taken;
  }
  return absl::OkStatus();
}

absl::Status StoredElements::CopyBox(const TensorSlice& slice, void* out) const {
  const int64_t width = SizeOf(slice.dtype);
  absl::Status status;
  if (data_ != nullptr || shards_ == nullptr) {
    ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
      CopyFrom(data_, global, 1, count, static_cast<uint8_t*>(out) + local * width);
    });
    return status;
  }
  for (const ShardPlace& place : shards_->ShardsOf(*name_)) {
    const ShardRecord& shard = shards_->shard(place);
    ForEachSharedRun({shard.offset, shard.shape}, {slice.offset, slice.shape},
                     [&](int64_t in_shard, int64_t local, int64_t count) {
                       if (!status.ok()) return;
                       const absl::StatusOr<const uint8_t*> bytes =
                           shards_->Bytes(place, in_shard * width_, count * width_);
                       status = bytes.status();
                       if (status.ok())
                         CopyFrom(*bytes, 0, 1, count, static_cast<uint8_t*>(out) + local * width);
                     });
    WEIR_RETURN_IF_ERROR(status);
  }
  return status;
}

absl::StatusOr<bool> SafetensorsReader::SameBytes(const std::string& a,
                                                  const std::string& b) const {
  const StoredTensor &first = tensors_.at(a), &second = tensors_.at(b);
  if (first.dtype != second.dtype || first.shape != second.shape) return false;
  if (shards_ == nullptr) {
    return memcmp(files_[first.file].bytes->data() + first.begin,
                  files_[second.file].bytes->data() + second.begin,
                  static_cast<size_t>(first.end - first.begin)) == 0;
  }
  bool same = true;
  absl::Status status;
  const int64_t width = StoredWidth(first.dtype);
  for (const ShardPlace& one : shards_->ShardsOf(StoredAs(a, first))) {
    for (const ShardPlace& other : shards_->ShardsOf(StoredAs(b, second))) {
      const ShardRecord &left = shards_->shard(one), &right = shards_->shard(other);
      ForEachSharedRun({left.offset, left.shape}, {right.offset, right.shape},
                       [&](int64_t in_left, int64_t in_right, int64_t count) {
                         if (!status.ok() || !same) return;
                         const auto x = shards_->Bytes(one, in_left * width, count * width);
                         const auto y = shards_->Bytes(other, in_right * width, count * width);
                         status = x.ok() ? y.status() : x.status();
                         if (status.ok())
                           same = memcmp(*x, *y, static_cast<size_t>(count * width)) == 0;
                       });
      WEIR_RETURN_IF_ERROR(status);
    }
  }
  return same;
}

absl::Status SafetensorsReader::Read(const std::string& name, const TensorSlice& slice,
                                     void* out) const {
  const auto it = tensors_.find(name);
  if (it != tensors_.end() && it->second.shape != slice.global_shape) {
    return Rejected({"W0044", absl::StrCat(path(), ", tensor ", name),
                     "shape " + ToText(slice.global_shape), "shape " + ToText(it->second.shape),
                     "use weights saved from a model of the same sizes"});
  }
  WEIR_ASSIGN_OR_RETURN(const StoredElements elements, ElementsOf(name, slice.dtype));
  return elements.CopyBox(slice, out);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<Entry> entries,
    const std::map<std::string, std::string>& metadata) {
  std::set<std::string> names = {"__metadata__"};
  for (const Entry& entry : entries) {
    if (!names.insert(entry.name).second || NumElements(entry.shape) < 0) {
      return absl::InternalError(
          absl::StrCat("tensor ", entry.name, " cannot be stored: name used twice or bad shape"));
    }
  }
  // Wide elements first, so that every tensor is aligned; then by name.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (SizeOf(a.dtype) != SizeOf(b.dtype)) return SizeOf(a.dtype) > SizeOf(b.dtype);
    return a.name < b.name;
  });
  auto writer = std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter());
  writer->path_ = path;
  writer->metadata_ = metadata;
  writer->metadata_[kHeaderSum] = kNoSum;
  for (const Entry& entry : entries) writer->metadata_[SumKey(entry.name)] = kNoSum;
  writer->entries_ = std::move(entries);
  writer->written_.resize(writer->entries_.size(), 0);
  std::string header = HeaderText(writer->entries_, writer->metadata_, &writer->positions_);
  if (static_cast<int64_t>(header.size()) > kSafetensorsHeaderBytesMax) {
    return Rejected({"W0046", path, "a header within the limit of the format",
                     absl::StrCat(header.size(), " bytes"), ""});
  }
  for (int64_t& position : writer->positions_) position += 8 + static_cast<int64_t>(header.size());
  if (const int error = writer->file_.Create(path))
    return CannotWrite(path, "cannot make a temporary file beside it", error);
  uint64_t length = header.size();
  WEIR_RETURN_IF_ERROR(writer->WriteAt(0, &length, 8));
  WEIR_RETURN_IF_ERROR(writer->WriteAt(8, header.data(), static_cast<int64_t>(header.size())));
  // Reserves room for everything now, since a process that maps the file must not meet a full disk.
  int64_t end = 8 + static_cast<int64_t>(header.size());
  for (const Entry& entry : writer->entries_) end += NumElements(entry.shape) * SizeOf(entry.dtype);
  const int error = ::posix_fallocate(writer->file_.descriptor(), 0, end);
  if (error != 0) return CannotWrite(path, absl::StrCat("no room for ", end, " bytes"), error);
  return writer;
}

absl::Status SafetensorsWriter::WriteAt(int64_t position, const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t done = ::pwrite(file_.descriptor(), from, static_cast<size_t>(bytes), position);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      return CannotWrite(path_, absl::StrCat("write failed at byte ", position),
                         done < 0 ? errno : ENOSPC);
    from += done;
    position += done;
    bytes -= done;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Write(size_t index, const void* data) {
  if (index >= entries_.size()) return absl::InternalError("no such entry of the file");
  const Entry& entry = entries_[index];
  WEIR_RETURN_IF_ERROR(
      WriteAt(positions_[index], data, NumElements(entry.shape) * SizeOf(entry.dtype)));
  written_[index] += NumElements(entry.shape);
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::NotePart(const std::string& name, int64_t elements) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name != name) continue;
    written_[i] += elements;
    return absl::OkStatus();
  }
  return absl::InternalError("no tensor " + name + " in the file");
}

absl::Status SafetensorsWriter::Seal() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    int64_t elements = NumElements(entries_[i].shape);
    if (written_[i] == elements) continue;
    return ErrorOf(absl::StatusCode::kInternal,
                   {"W0072", absl::StrCat("state ", entries_[i].name),
                    absl::StrCat("each of its ", elements, " elements written once"),
                    absl::StrCat(written_[i]), ""});
  }
  WEIR_RETURN_IF_ERROR(WriteChecksums());
  if (::fsync(file_.descriptor()) != 0) return CannotWrite(path_, "cannot flush", errno);
  is_sealed_ = true;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Commit() {
  if (!is_sealed_) WEIR_RETURN_IF_ERROR(Seal());
  if (const int error = file_.Publish())
    return CannotWrite(path_, "cannot put it in its place", error);
  // The name itself must survive a power cut, too.
  if (const int error = file_.FlushFolder())
    return CannotWrite(path_, "it is in its place, but its folder cannot be flushed", error);
  return absl::OkStatus();
}

// Writes the checksums into the header, whose length does not change.
absl::Status SafetensorsWriter::WriteChecksums() {
  struct stat info;
  if (::fstat(file_.descriptor(), &info) != 0)
    return CannotWrite(path_, "cannot look at it", errno);
  void* mapped = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED,
                        file_.descriptor(), 0);
  if (mapped == MAP_FAILED) return CannotWrite(path_, "cannot read it back", errno);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t bytes = NumElements(entries_[i].shape) * SizeOf(entries_[i].dtype);
    metadata_[SumKey(entries_[i].name)] = SumText(
        Crc32c(static_cast<const char*>(mapped) + positions_[i], static_cast<size_t>(bytes)));
  }
  ::munmap(mapped, static_cast<size_t>(info.st_size));
  std::vector<int64_t> positions;
  metadata_[kHeaderSum] = HeaderSum(HeaderText(entries_, metadata_, &positions));
  const std::string header = HeaderText(entries_, metadata_, &positions);
  const uint64_t length = header.size();
  header_sum_ = ExtendCrc32c(Crc32c(&length, sizeof(length)), header.data(), header.size());
  return WriteAt(8, header.data(), static_cast<int64_t>(header.size()));
}

absl::StatusOr<std::unique_ptr<SafetensorsPart>> SafetensorsPart::Open(
    const std::string& temporary_path, const std::string& path) {
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> opened =
      SafetensorsReader::Open(temporary_path);
  if (!opened.ok())
    return CannotWrite(
        path, absl::StrCat("cannot open it to write a part, ", opened.status().message()), errno);
  const SafetensorsReader* const reader = opened->get();
  auto part = std::unique_ptr<SafetensorsPart>(new SafetensorsPart());
  part->path_ = path;
  part->tensors_ = reader->tensors();
  for (const auto& [name, tensor] : part->tensors_) part->size_ = std::max(part->size_, tensor.end);
  if (part->size_ == 0) return part;
  const int fd = ::open(temporary_path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return CannotWrite(path, "cannot open it to write a part", errno);
  void* data =
      ::mmap(nullptr, static_cast<size_t>(part->size_), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return CannotWrite(path, "cannot map it to write a part", error);
  part->data_ = static_cast<char*>(data);
  return part;
}

SafetensorsPart::~SafetensorsPart() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

absl::Status SafetensorsPart::Write(const std::string& name, const TensorSlice& slice,
                                    const void* data) {
  auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second.shape != slice.global_shape ||
      it->second.dtype != StoredName(slice.dtype)) {
    return absl::InternalError(absl::StrCat(path_, " was begun without a tensor ", name, " of ",
                                            Name(slice.dtype), ToText(slice.global_shape)));
  }
  const int64_t width = SizeOf(slice.dtype);
  const char* from = static_cast<const char*>(data);
  char* to = data_ + it->second.begin;
  ForEachRun(slice, [&](int64_t local, int64_t global, int64_t count) {
    memcpy(to + global * width, from + local * width, static_cast<size_t>(count * width));
  });
  return absl::OkStatus();
}

absl::Status SafetensorsPart::Flush() {
  if (data_ != nullptr && ::msync(data_, static_cast<size_t>(size_), MS_SYNC) != 0)
    return CannotWrite(path_, "cannot flush a part", errno);
  return absl::OkStatus();
}

}  // namespace weir::store
