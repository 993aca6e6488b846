#include "runtime/store/checkpoint_shards.h"

#include <string.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/content_sum.h"
#include "runtime/store/safetensors_header.h"
#include "runtime/store/stored_dtype.h"

namespace weir::store {
namespace {

namespace fs = std::filesystem;

std::string AnotherOrCopy(const std::string& folder) {
  return AnotherCheckpoint(folder) + ", or a copy of this one";
}

std::string SumText(uint32_t sum) { return absl::StrCat(absl::Hex(sum, absl::kZeroPad8)); }

absl::Status WrongStep(const std::string& folder, const std::string& tensor, int64_t expected,
                       const std::string& found) {
  return Damaged({"W0717", folder + tensor, absl::StrCat("states of step ", expected), found,
                  AnotherCheckpoint(folder) + "; states of two steps do not fit together"});
}

absl::Status WrongRun(const std::string& folder, const std::string& file,
                      const std::string& expected, const std::string& found) {
  return Damaged({"W0967", (fs::path(folder) / file).string(),
                  absl::StrCat("shards of run ", expected), absl::StrCat("shards of run ", found),
                  AnotherOrCopy(folder) + "; states of two runs do not fit together"});
}

absl::Status CheckRuns(const CheckpointIndex& index, const std::string& folder) {
  for (const ShardFileRecord& file : index.files) {
    if (AreOfTwoRuns(index.facts.job_id, file.job_id))
      return WrongRun(folder, file.name, index.facts.job_id, file.job_id);
  }
  return absl::OkStatus();
}

// Returns the run that a file of shards names; empty: it names none, or its header is damaged.
std::string RunNamedBy(const FileBytes& file) {
  uint64_t length = 0;
  if (file.size < static_cast<int64_t>(sizeof(length))) return "";
  memcpy(&length, file.data, sizeof(length));
  if (length > static_cast<uint64_t>(file.size) - sizeof(length)) return "";
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(
      "", reinterpret_cast<const char*>(file.data) + sizeof(length), static_cast<int64_t>(length));
  if (!header.ok()) return "";
  return RunOf(header->metadata);
}

// Checks the size and the header of a file. If the file is another run's, the error says so.
absl::Status CheckFrame(const CheckpointIndex& index, const ShardFileRecord& record,
                        const std::string& folder, const FileBytes& file) {
  const bool has_size = file.size == record.bytes;
  const uint32_t sum = has_size ? Crc32c(file.data, static_cast<size_t>(record.header_bytes)) : 0;
  if (has_size && sum == record.header_sum) return absl::OkStatus();
  if (const std::string run = RunNamedBy(file); AreOfTwoRuns(index.facts.job_id, run))
    return WrongRun(folder, record.name, index.facts.job_id, run);
  const std::string path = (fs::path(folder) / record.name).string();
  if (has_size) {
    return Damaged({"W0713", path + ", header", "bytes with CRC32C " + SumText(record.header_sum),
                    "bytes with CRC32C " + SumText(sum), AnotherOrCopy(folder)});
  }
  return Damaged(
      {"W0713",
       absl::StrCat(path, record.shards.empty() ? "" : ", tensor " + record.shards[0].tensor),
       absl::StrCat("a file of ", record.bytes, " bytes"), absl::StrCat(file.size, " bytes"),
       AnotherOrCopy(folder)});
}

absl::Status CheckSteps(const CheckpointIndex& index, const std::string& folder) {
  const int64_t step = index.facts.step;
  for (const ShardFileRecord& file : index.files) {
    if (file.step == step) continue;
    const std::string tensor = file.shards.empty() ? "" : ", tensor " + file.shards[0].tensor;
    return WrongStep(folder, tensor, step, absl::StrCat(file.name, " of step ", file.step));
  }
  const std::optional<int64_t> named =
      StepOfName(fs::path(folder).lexically_normal().filename().string());
  if (named.has_value() && *named != step)
    return WrongStep(folder, "", *named, absl::StrCat("an index of step ", step));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointShards>> CheckpointShards::Open(const std::string& path,
                                                                         FileSystem* files) {
  auto shards = std::unique_ptr<CheckpointShards>(new CheckpointShards(files));
  WEIR_ASSIGN_OR_RETURN(shards->folder_, ResolveCheckpoint(path, files));
  WEIR_ASSIGN_OR_RETURN(shards->index_,
                        ReadIndex((fs::path(shards->folder_) / kIndexFile).string(), files));
  const CheckpointIndex& index = shards->index_;
  WEIR_RETURN_IF_ERROR(CheckOwners(index, shards->folder_));
  WEIR_RETURN_IF_ERROR(CheckSteps(index, shards->folder_));
  WEIR_RETURN_IF_ERROR(CheckRuns(index, shards->folder_));
  for (const auto& [name, tensor] : index.tensors) shards->places_[name];
  shards->chunks_.resize(index.files.size());
  for (size_t i = 0; i < index.files.size(); ++i) {
    size_t chunks = 0;
    for (size_t k = 0; k < index.files[i].shards.size(); ++k) {
      const ShardRecord& shard = index.files[i].shards[k];
      shards->places_[shard.tensor].push_back({i, k});
      shards->chunks_[i].first.push_back(chunks);
      chunks += shard.chunk_sums.size();
    }
    shards->chunks_[i].is_checked = std::make_unique<std::atomic<bool>[]>(chunks);
  }
  MutexLock lock(&shards->mutex_);
  shards->opened_.resize(index.files.size());
  return shards;
}

const std::vector<ShardPlace>& CheckpointShards::ShardsOf(const std::string& tensor) const {
  return places_.at(tensor);
}

std::string CheckpointShards::PathOf(size_t file) const {
  return (fs::path(folder_) / index_.files[file].name).string();
}

absl::StatusOr<const FileBytes*> CheckpointShards::OpenFile(size_t i) const {
  MutexLock lock(&mutex_);
  if (opened_[i].owner != nullptr) return &opened_[i];
  const ShardFileRecord& record = index_.files[i];
  const std::string path = PathOf(i);
  const std::string where =
      absl::StrCat(path, record.shards.empty() ? "" : ", tensor " + record.shards[0].tensor);
  if (files_->KindOf(path) == FileSystem::Kind::kNone) {
    return Missing(
        {"W0712", where,
         record.host.empty() ? "the shards that the index lists"
                             : absl::StrCat("the shards that host '", record.host, "' has"),
         "no such file here",
         record.host.empty()
             ? AnotherOrCopy(folder_)
             : absl::StrCat("copy ", record.name, " from host '", record.host, "' into ", folder_,
                            ", or begin the run with a disk that all hosts share")});
  }
  WEIR_ASSIGN_OR_RETURN(FileBytes bytes, files_->Map(path, "shards of a checkpoint"));
  WEIR_RETURN_IF_ERROR(CheckFrame(index_, record, folder_, bytes));
  opened_[i] = std::move(bytes);
  return &opened_[i];
}

absl::StatusOr<const uint8_t*> CheckpointShards::Bytes(const ShardPlace& place, int64_t begin,
                                                       int64_t count) const {
  const ShardFileRecord& record = index_.files[place.file];
  const ShardRecord& of_shard = record.shards[place.number];
  WEIR_ASSIGN_OR_RETURN(const FileBytes* const file, OpenFile(place.file));
  const uint8_t* const data = file->data + of_shard.begin;
  const int64_t size = of_shard.end - of_shard.begin;
  std::atomic<bool>* const is_checked =
      chunks_[place.file].is_checked.get() + chunks_[place.file].first[place.number];
  for (int64_t chunk = begin / record.chunk_bytes;
       count > 0 && chunk <= (begin + count - 1) / record.chunk_bytes; ++chunk) {
    if (is_checked[chunk].load(std::memory_order_relaxed)) continue;
    const int64_t at = chunk * record.chunk_bytes;
    const int64_t length = std::min(record.chunk_bytes, size - at);
    const uint32_t expected = of_shard.chunk_sums[static_cast<size_t>(chunk)];
    const uint32_t found = Crc32c(data + at, static_cast<size_t>(length));
    bytes_read_.fetch_add(length, std::memory_order_relaxed);
    if (found != expected) {
      return Damaged(
          {"W0713", absl::StrCat(PathOf(place.file), ", tensor ", of_shard.tensor),
           absl::StrCat("bytes ", of_shard.begin + at, " to ", of_shard.begin + at + length,
                        " with CRC32C ", SumText(expected)),
           "bytes with CRC32C " + SumText(found), AnotherOrCopy(folder_)});
    }
    is_checked[chunk].store(true, std::memory_order_relaxed);
  }
  return data + begin;
}

absl::Status CheckpointShards::CheckSizes() const {
  for (size_t i = 0; i < index_.files.size(); ++i) {
    const absl::Status opened = OpenFile(i).status();
    if (absl::IsNotFound(opened) && !index_.files[i].host.empty()) continue;
    WEIR_RETURN_IF_ERROR(opened);
  }
  return absl::OkStatus();
}

absl::Status CheckpointShards::CheckFile(size_t i) const {
  const ShardFileRecord& record = index_.files[i];
  WEIR_RETURN_IF_ERROR(OpenFile(i).status());
  for (size_t k = 0; k < record.shards.size(); ++k) {
    const ShardRecord& of_shard = record.shards[k];
    WEIR_RETURN_IF_ERROR(Bytes({i, k}, 0, of_shard.end - of_shard.begin).status());
  }
  return absl::OkStatus();
}

absl::Status CheckpointShards::CheckContent(const std::string& tensor) const {
  const TensorFacts& facts = index_.tensors.at(tensor);
  const uint32_t seed = ContentSeed(tensor);
  uint64_t sum = 0;
  for (const ShardPlace& place : ShardsOf(tensor)) {
    const ShardRecord& of_shard = shard(place);
    WEIR_ASSIGN_OR_RETURN(const uint8_t* const bytes,
                          Bytes(place, 0, of_shard.end - of_shard.begin));
    sum += AddContent(seed, StoredWidth(facts.dtype), facts.shape, of_shard.offset, of_shard.shape,
                      0, NumElements(of_shard.shape), bytes);
  }
  if (sum == facts.content) return absl::OkStatus();
  return Damaged(
      {"W0715", absl::StrCat(folder_, ", tensor ", tensor),
       absl::StrCat("values with the content sum ", absl::Hex(facts.content, absl::kZeroPad16)),
       absl::StrCat("values with the sum ", absl::Hex(sum, absl::kZeroPad16),
                    ": they were exchanged, moved or rewritten after the run wrote them"),
       AnotherOrCopy(folder_)});
}

}  // namespace weir::store
