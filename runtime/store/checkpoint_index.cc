#include "runtime/store/checkpoint_index.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/stored_dtype.h"

namespace weir::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr char kMark[] = "WEIRCKPT";
constexpr size_t kMarkBytes = 8, kFrameBytes = kMarkBytes + 8 + 4;
constexpr size_t kTensorsMax = 100'000, kFilesMax = 100'000, kAxesMax = 16;

absl::Status DamagedIndex(const std::string& where, const std::string& expected,
                          const std::string& found) {
  return Damaged({"W0710", where, expected, found, ""});
}

// Messages in memory are larger than in a file, so a file of many empty ones would take much
// memory. Returns whether the payload can be walked through, its tensors, files, shards and keys
// have kMessageBytesMin bytes on average, and its shapes and offsets are packed and have possible
// sizes.
constexpr uint64_t kMessageBytesMin = 16;
constexpr uint32_t kShapeBytesMax = kAxesMax * 10;  // a number has at most 10 bytes
bool HasBoundedMessages(absl::string_view payload) {
  enum : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };
  enum class In : uint8_t { kIndex, kTensor, kFile, kShard };
  using proto::CheckpointFile;
  using proto::CheckpointShard;
  using proto::CheckpointTensor;
  using Index = proto::CheckpointIndex;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(payload.data()),
                                            static_cast<int>(payload.size()));
  uint64_t messages = 0, number = 0;
  std::vector<std::pair<In, int>>
      outer;  // where the messages around this one are, and their limits
  In place = In::kIndex;
  for (;;) {
    const uint32_t tag = in.ReadTag(), field = tag >> 3, wire = tag & 7;
    if (tag == 0 && !outer.empty() && in.BytesUntilLimit() == 0) {
      place = outer.back().first;
      in.PopLimit(outer.back().second);
      outer.pop_back();
      continue;
    }
    if (tag == 0) break;
    uint32_t size = 0;
    const bool is_shape = (place == In::kTensor && field == CheckpointTensor::kShapeFieldNumber) ||
                          (place == In::kShard && (field == CheckpointShard::kShapeFieldNumber ||
                                                   field == CheckpointShard::kOffsetFieldNumber));
    if (is_shape && wire != kDelimited) return false;
    bool is_read = false;
    switch (wire) {
      case kVarint: is_read = in.ReadVarint64(&number); break;
      case kFixed64: is_read = in.ReadLittleEndian64(&number); break;
      case kFixed32: is_read = in.ReadLittleEndian32(&size); break;
      case kDelimited: is_read = in.ReadVarint32(&size) && size <= payload.size(); break;
      default: break;
    }
    if (!is_read) return false;
    if (wire != kDelimited) continue;
    std::optional<In> inner;
    if (place == In::kIndex && field == Index::kTensorFieldNumber) inner = In::kTensor;
    if (place == In::kIndex && field == Index::kFileFieldNumber) inner = In::kFile;
    if (place == In::kFile && field == CheckpointFile::kShardFieldNumber) inner = In::kShard;
    if (place == In::kIndex || inner.has_value()) ++messages;
    if (inner.has_value()) {
      outer.emplace_back(place, in.PushLimit(static_cast<int>(size)));
      place = *inner;
    } else if ((is_shape && size > kShapeBytesMax) || !in.Skip(static_cast<int>(size))) {
      return false;
    }
  }
  return outer.empty() && static_cast<size_t>(in.CurrentPosition()) == payload.size() &&
         (messages <= 64 || messages * kMessageBytesMin <= payload.size());
}

uint64_t Mix64(uint64_t h) {
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9u;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}
uint64_t Fold(uint64_t h, uint64_t value) { return Mix64(h + 0x9e3779b97f4a7c15u + value); }
uint64_t Fold(uint64_t h, const std::string& text) {
  return Fold(Fold(h, text.size()), Crc32c(text.data(), text.size()));
}

std::optional<StateOwner> OwnerOf(proto::CheckpointTensor::Owner owner) {
  switch (owner) {
    case proto::CheckpointTensor::WEIGHT: return StateOwner::kWeight;
    case proto::CheckpointTensor::OPTIMIZER_SLOT: return StateOwner::kOptimizerSlot;
    case proto::CheckpointTensor::DELAYED_GRADIENT: return StateOwner::kDelayedGradient;
    default: return std::nullopt;
  }
}

proto::CheckpointTensor::Owner ToProto(StateOwner owner) {
  switch (owner) {
    case StateOwner::kWeight: return proto::CheckpointTensor::WEIGHT;
    case StateOwner::kOptimizerSlot: return proto::CheckpointTensor::OPTIMIZER_SLOT;
    case StateOwner::kDelayedGradient: return proto::CheckpointTensor::DELAYED_GRADIENT;
  }
  return proto::CheckpointTensor::WEIGHT;
}

// A file lies in the folder of its index.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Returns the bytes of the elements; -1 if type or shape make no sense.
int64_t BytesFor(const std::string& dtype, const Shape& shape) {
  const int64_t elements = NumElements(shape), width = StoredWidth(dtype);
  if (shape.size() > kAxesMax || elements < 0 || width == 0 || elements > INT64_MAX / width)
    return -1;
  return elements * width;
}

absl::StatusOr<ShardRecord> ShardOf(proto::CheckpointShard* message,
                                    const proto::CheckpointFile& file, const std::string& where) {
  ShardRecord shard;
  shard.tensor = std::move(*message->mutable_tensor());
  shard.dtype = std::move(*message->mutable_dtype());
  shard.offset.assign(message->offset().begin(), message->offset().end());
  shard.shape.assign(message->shape().begin(), message->shape().end());
  const std::string at = absl::StrCat(where, ", tensor ", shard.tensor);
  const int64_t bytes = BytesFor(shard.dtype, shard.shape);
  if (bytes < 0 || shard.offset.size() != shard.shape.size()) {
    return DamagedIndex(
        at, "a known dtype, and a shape and an offset of possible size",
        absl::StrCat(shard.dtype, ToText(shard.shape), " at ", ToText(shard.offset)));
  }
  shard.begin = message->begin();
  if (shard.begin < file.header_bytes() || shard.begin > file.bytes() ||
      bytes > file.bytes() - shard.begin) {
    return DamagedIndex(at, absl::StrCat("bytes within the ", file.bytes(), " of the file"),
                        absl::StrCat(bytes, " bytes from byte ", shard.begin, " on"));
  }
  shard.end = shard.begin + bytes;
  const int64_t chunks = bytes / file.chunk_bytes() + (bytes % file.chunk_bytes() > 0 ? 1 : 0);
  if (message->chunk_crc32c_size() != chunks) {
    return DamagedIndex(at, absl::StrCat(chunks, " checksums, one for each chunk"),
                        absl::StrCat(message->chunk_crc32c_size()));
  }
  shard.chunk_sums.assign(message->chunk_crc32c().begin(), message->chunk_crc32c().end());
  shard.content = message->content();
  return shard;
}

proto::CheckpointCursor ToProto(const DataCursor& cursor) {
  proto::CheckpointCursor message;
  message.set_samples(cursor.samples);
  message.set_samples_per_epoch(cursor.samples_per_epoch);
  message.set_seed(cursor.seed);
  message.set_data(cursor.data);
  message.set_seal(cursor.seal);
  return message;
}

}  // namespace

const char* OwnerText(StateOwner owner) {
  switch (owner) {
    case StateOwner::kWeight: return "weight";
    case StateOwner::kOptimizerSlot: return "optimizer slot";
    case StateOwner::kDelayedGradient: return "delayed gradient";
  }
  return "?";
}

uint64_t CursorSeal(const DataCursor& cursor, int64_t step, int64_t optimizer_step) {
  uint64_t h = Fold(1, static_cast<uint64_t>(step));
  h = Fold(h, static_cast<uint64_t>(optimizer_step));
  h = Fold(h, static_cast<uint64_t>(cursor.samples));
  h = Fold(h, static_cast<uint64_t>(cursor.samples_per_epoch));
  h = Fold(h, cursor.seed);
  return Fold(h, cursor.data);
}

uint64_t KeySeal(const RandomKey& key) { return Fold(Fold(2, key.name), key.key); }

void SealFacts(CheckpointFacts* facts) {
  if (facts->cursor.has_value())
    facts->cursor->seal = CursorSeal(*facts->cursor, facts->step, facts->optimizer_step);
  for (RandomKey& key : facts->keys) key.seal = KeySeal(key);
}

proto::CheckpointFile ToProto(const ShardFileRecord& file) {
  proto::CheckpointFile message;
  message.set_name(file.name);
  message.set_host(file.host);
  message.set_bytes(file.bytes);
  message.set_header_bytes(file.header_bytes);
  message.set_header_crc32c(file.header_sum);
  message.set_step(file.step);
  message.set_job_id(file.job_id);
  message.set_chunk_bytes(file.chunk_bytes);
  for (const ShardRecord& shard : file.shards) {
    proto::CheckpointShard* const added = message.add_shard();
    added->set_tensor(shard.tensor);
    added->set_dtype(shard.dtype);
    added->mutable_offset()->Add(shard.offset.begin(), shard.offset.end());
    added->mutable_shape()->Add(shard.shape.begin(), shard.shape.end());
    added->set_begin(shard.begin);
    added->mutable_chunk_crc32c()->Add(shard.chunk_sums.begin(), shard.chunk_sums.end());
    added->set_content(shard.content);
  }
  return message;
}

absl::StatusOr<ShardFileRecord> FromProto(proto::CheckpointFile message, const std::string& where) {
  ShardFileRecord file;
  file.name = message.name();
  const std::string at = absl::StrCat(where, ", file ", file.name);
  if (!IsPlainName(file.name))
    return DamagedIndex(at, "the name of a file in the folder of the checkpoint", "another");
  file.host = message.host();
  file.bytes = message.bytes();
  file.header_bytes = message.header_bytes();
  if (file.header_bytes < 8 || file.bytes < file.header_bytes || message.chunk_bytes() < 1) {
    return DamagedIndex(at, "sizes that make sense",
                        absl::StrCat(file.bytes, " bytes, of them ", file.header_bytes,
                                     " of header, in chunks of ", message.chunk_bytes()));
  }
  file.header_sum = message.header_crc32c();
  file.step = message.step();
  file.job_id = message.job_id();
  file.chunk_bytes = message.chunk_bytes();
  file.shards.reserve(static_cast<size_t>(message.shard_size()));
  for (proto::CheckpointShard& shard : *message.mutable_shard()) {
    WEIR_ASSIGN_OR_RETURN(ShardRecord record, ShardOf(&shard, message, at));
    file.shards.push_back(std::move(record));
  }
  return file;
}

std::string EncodeIndex(const CheckpointIndex& index) {
  proto::CheckpointIndex message;
  message.set_format_version(kCheckpointFormat);
  message.set_job(index.facts.job);
  message.set_job_id(index.facts.job_id);
  message.set_plan_id(index.facts.plan_id);
  message.set_step(index.facts.step);
  message.set_optimizer_step(index.facts.optimizer_step);
  message.set_schedule(index.facts.schedule);
  if (index.facts.cursor.has_value()) *message.mutable_cursor() = ToProto(*index.facts.cursor);
  for (const RandomKey& key : index.facts.keys) {
    proto::CheckpointKey* const added = message.add_key();
    added->set_name(key.name);
    added->set_key(key.key);
    added->set_seal(key.seal);
  }
  for (const auto& [name, tensor] : index.tensors) {
    proto::CheckpointTensor* const added = message.add_tensor();
    added->set_name(name);
    added->set_dtype(tensor.dtype);
    added->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    added->set_owner(ToProto(tensor.owner));
    added->set_elements(NumElements(tensor.shape));
    added->set_content(tensor.content);
  }
  for (const ShardFileRecord& file : index.files) *message.add_file() = ToProto(file);
  std::string payload;
  message.SerializeToString(&payload);
  std::string bytes(kMark, kMarkBytes);
  const uint64_t length = payload.size();
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += payload;
  const uint32_t sum = Crc32c(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return bytes;
}

uint32_t SumOfIndex(absl::string_view bytes) {
  uint32_t sum;
  memcpy(&sum, bytes.data() + bytes.size() - sizeof(sum), sizeof(sum));
  return sum;
}

std::optional<uint32_t> ReadSumOfIndex(const std::string& path, FileSystem* files) {
  const absl::StatusOr<FileBytes> file = files->Map(path, "index of a checkpoint");
  if (!file.ok() || file->size < static_cast<int64_t>(kFrameBytes)) return std::nullopt;
  return SumOfIndex({reinterpret_cast<const char*>(file->data), static_cast<size_t>(file->size)});
}

absl::StatusOr<CheckpointIndex> DecodeIndex(absl::string_view bytes, const std::string& path) {
  if (bytes.size() < kFrameBytes || memcmp(bytes.data(), kMark, kMarkBytes) != 0)
    return DamagedIndex(path, absl::StrCat("an index, which begins with ", kMark), "another file");
  uint64_t length;
  memcpy(&length, bytes.data() + kMarkBytes, sizeof(length));
  const uint32_t sum = SumOfIndex(bytes);
  if (length != bytes.size() - kFrameBytes) {
    return DamagedIndex(path, absl::StrCat(length, " bytes of index, as its beginning says"),
                        absl::StrCat(bytes.size() - kFrameBytes));
  }
  if (const uint32_t found = Crc32c(bytes.data(), bytes.size() - sizeof(sum)); found != sum) {
    return DamagedIndex(path, absl::StrCat("bytes with CRC32C ", absl::Hex(sum, absl::kZeroPad8)),
                        absl::StrCat("bytes with CRC32C ", absl::Hex(found, absl::kZeroPad8)));
  }
  if (!HasBoundedMessages(bytes.substr(kMarkBytes + sizeof(length), length))) {
    return DamagedIndex(path,
                        absl::StrCat("messages of ", kMessageBytesMin,
                                     " bytes or more, and shapes of at most ", kAxesMax, " axes"),
                        "shorter ones, larger shapes, or bytes that are none");
  }
  proto::CheckpointIndex message;
  if (!message.ParseFromArray(bytes.data() + kMarkBytes + sizeof(length), static_cast<int>(length)))
    return DamagedIndex(path, "a message CheckpointIndex", "bytes that are none");
  if (message.format_version() != kCheckpointFormat) {
    return Rejected({"W0721", path, absl::StrCat("a checkpoint of format ", kCheckpointFormat),
                     absl::StrCat("format ", message.format_version()),
                     "the version of Weir that wrote the checkpoint, and `weir checkpoint export` "
                     "with it"});
  }
  CheckpointIndex index;
  index.sum = sum;
  index.facts.job = message.job();
  index.facts.job_id = message.job_id();
  index.facts.plan_id = message.plan_id();
  index.facts.step = message.step();
  index.facts.optimizer_step = message.optimizer_step();
  index.facts.schedule = message.schedule();
  if (message.has_cursor()) {
    const proto::CheckpointCursor& cursor = message.cursor();
    index.facts.cursor = DataCursor{cursor.samples(), cursor.samples_per_epoch(), cursor.seed(),
                                    cursor.data(), cursor.seal()};
  }
  for (const proto::CheckpointKey& key : message.key())
    index.facts.keys.push_back({key.name(), key.key(), key.seal()});
  if (index.facts.step < 0 || static_cast<size_t>(message.tensor_size()) > kTensorsMax ||
      static_cast<size_t>(message.file_size()) > kFilesMax) {
    return DamagedIndex(
        path,
        absl::StrCat("a step, and at most ", kTensorsMax, " tensors and ", kFilesMax, " files"),
        absl::StrCat("step ", index.facts.step, ", ", message.tensor_size(), " tensors, ",
                     message.file_size(), " files"));
  }
  for (const proto::CheckpointTensor& tensor : message.tensor()) {
    const std::string at = absl::StrCat(path, ", tensor ", tensor.name());
    const std::optional<StateOwner> owner = OwnerOf(tensor.owner());
    TensorFacts facts{tensor.dtype(), Shape(tensor.shape().begin(), tensor.shape().end()),
                      owner.value_or(StateOwner::kWeight), tensor.content()};
    if (BytesFor(facts.dtype, facts.shape) < 0 || !owner.has_value() ||
        NumElements(facts.shape) != tensor.elements()) {
      return DamagedIndex(
          at, "a known dtype and owner, and as many elements as the shape has",
          absl::StrCat(facts.dtype, ToText(facts.shape), ", ", tensor.elements(), " elements"));
    }
    if (!index.tensors.emplace(tensor.name(), std::move(facts)).second)
      return DamagedIndex(at, "each tensor once", "the tensor twice");
  }
  std::set<std::string> names;
  for (proto::CheckpointFile& file : *message.mutable_file()) {
    WEIR_ASSIGN_OR_RETURN(ShardFileRecord record, FromProto(std::move(file), path));
    if (!names.insert(record.name).second)
      return DamagedIndex(absl::StrCat(path, ", file ", record.name), "each file once", "it twice");
    index.files.push_back(std::move(record));
  }
  return index;
}

namespace {

// Adds the advice to the error of a damaged index at `path` (DIR/step-000000120/index.pb).
absl::Status WithAdvice(const absl::Status& status, const std::string& path) {
  std::optional<Problem> problem = ProblemOf(status);
  if (!absl::IsDataLoss(status) || !problem.has_value()) return status;
  problem->hint = AnotherCheckpoint(FolderAround(path)) + ", or another copy of this one";
  return ErrorOf(status.code(), *problem);
}

}  // namespace

absl::StatusOr<CheckpointIndex> ReadIndex(const std::string& path, FileSystem* files) {
  WEIR_ASSIGN_OR_RETURN(const FileBytes file, files->Map(path, "index of a checkpoint"));
  if (file.size > kIndexBytesMax) {
    return WithAdvice(
        DamagedIndex(path, absl::StrCat("an index of at most ", kIndexBytesMax, " bytes"),
                     absl::StrCat(file.size, " bytes")),
        path);
  }
  absl::StatusOr<CheckpointIndex> index =
      DecodeIndex({reinterpret_cast<const char*>(file.data), static_cast<size_t>(file.size)}, path);
  if (!index.ok()) return WithAdvice(index.status(), path);
  return index;
}

namespace {

struct Box {
  const ShardRecord* shard;
  const ShardFileRecord* file;
  int64_t begin(size_t axis) const { return shard->offset[axis]; }
  int64_t end(size_t axis) const { return shard->offset[axis] + shard->shape[axis]; }
  std::string Text() const {
    return absl::StrCat(ToText(shard->shape), " at ", ToText(shard->offset), " in ", file->name);
  }
};

bool Overlap(const Box& a, const Box& b) {
  for (size_t axis = 0; axis < a.shard->shape.size(); ++axis) {
    if (a.begin(axis) >= b.end(axis) || b.begin(axis) >= a.end(axis)) return false;
  }
  return true;
}

absl::Status NotOneOwner(const std::string& path, const std::string& tensor,
                         const std::string& expected, const std::string& found) {
  return Damaged({"W0714", absl::StrCat(path, ", tensor ", tensor), expected, found,
                  absl::StrCat(AnotherCheckpoint(path), "; nothing can be read from this one")});
}

// Returns the axis along which the boxes begin at most places. A sweep along it compares fewest.
size_t SweepAxis(const std::vector<Box>& boxes) {
  size_t best = 0, most = 0;
  for (size_t axis = 0; axis < boxes[0].shard->shape.size(); ++axis) {
    std::set<int64_t> begins;
    for (const Box& box : boxes) begins.insert(box.begin(axis));
    if (begins.size() > most) {
      most = begins.size();
      best = axis;
    }
  }
  return best;
}

absl::Status CheckBoxes(const std::string& path, const std::string& name, const TensorFacts& tensor,
                        std::vector<Box> boxes) {
  int64_t elements = 0;
  for (const Box& box : boxes) {
    bool fits = box.shard->dtype == tensor.dtype && box.shard->shape.size() == tensor.shape.size();
    for (size_t axis = 0; fits && axis < tensor.shape.size(); ++axis) {
      fits = box.shard->offset[axis] >= 0 && box.shard->shape[axis] >= 0 &&
             box.shard->shape[axis] <= tensor.shape[axis] - box.shard->offset[axis];
    }
    if (!fits) {
      return NotOneOwner(path, name, absl::StrCat("shards of ", tensor.dtype, ToText(tensor.shape)),
                         absl::StrCat("a shard of ", box.shard->dtype, box.Text()));
    }
    elements += NumElements(box.shard->shape);
  }
  std::erase_if(boxes, [](const Box& box) { return NumElements(box.shard->shape) == 0; });
  if (!boxes.empty() && !tensor.shape.empty()) {
    const size_t axis = SweepAxis(boxes);
    std::sort(boxes.begin(), boxes.end(),
              [axis](const Box& a, const Box& b) { return a.begin(axis) < b.begin(axis); });
    std::vector<const Box*> open;
    for (const Box& box : boxes) {
      std::erase_if(open, [&](const Box* other) { return other->end(axis) <= box.begin(axis); });
      for (const Box* const other : open) {
        if (!Overlap(box, *other)) continue;
        return NotOneOwner(path, name, "one owner of each element",
                           absl::StrCat("two: ", other->Text(), " and ", box.Text()));
      }
      open.push_back(&box);
    }
  } else if (boxes.size() > 1) {
    return NotOneOwner(path, name, "one owner of each element",
                       absl::StrCat("two: ", boxes[0].file->name, " and ", boxes[1].file->name));
  }
  if (elements == NumElements(tensor.shape)) return absl::OkStatus();
  return NotOneOwner(
      path, name, absl::StrCat("an owner of each of its ", NumElements(tensor.shape), " elements"),
      boxes.empty() ? "none of any: no file has a shard of it"
                    : absl::StrCat("owners of ", elements));
}

}  // namespace

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string FolderAround(const std::string& path) {
  const std::string folder = std::filesystem::path(WithoutSlashes(path)).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string AnotherCheckpoint(const std::string& folder) {
  return absl::StrCat("another checkpoint of the run (`weir checkpoint verify ",
                      FolderAround(folder), " --all-steps` says which are sound)");
}

absl::Status CheckOwners(const CheckpointIndex& index, const std::string& path) {
  std::map<std::string, std::vector<Box>> boxes;
  for (const ShardFileRecord& file : index.files) {
    for (const ShardRecord& shard : file.shards) boxes[shard.tensor].push_back({&shard, &file});
  }
  for (const auto& [name, of_tensor] : boxes) {
    if (index.tensors.count(name) > 0) continue;
    return NotOneOwner(path, name, "shards of tensors of the index",
                       absl::StrCat("a shard of another, ", of_tensor[0].Text()));
  }
  for (const auto& [name, tensor] : index.tensors)
    WEIR_RETURN_IF_ERROR(CheckBoxes(path, name, tensor, boxes[name]));
  return absl::OkStatus();
}

}  // namespace weir::store
