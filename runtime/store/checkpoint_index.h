// The index of a checkpoint folder: which run and step the checkpoint is of, its logical tensors,
// and in which files their elements lie. The index is a protocol buffer (proto/checkpoint.proto)
// between a mark, its length and a CRC32C; here it is values.
//
// The index is not the data. It says of each chunk of data which CRC32C it has, so a reader of some
// bytes can verify those bytes alone, and of each tensor a content sum (content_sum.h) that does
// not depend on how the tensor is cut. Thread rule: values and pure functions, except for reading a
// file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/checkpoint.pb.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/file_system.h"

namespace weir::store {

inline constexpr int32_t kCheckpointFormat = 1;
inline constexpr int64_t kIndexBytesMax = int64_t{256} << 20;
inline constexpr int64_t kShardChunkBytes = int64_t{1} << 20;
inline constexpr char kIndexFile[] = "index.pb";

enum class StateOwner : uint8_t { kWeight, kOptimizerSlot, kDelayedGradient };
// Returns "weight", "optimizer slot" or "delayed gradient".
const char* OwnerText(StateOwner owner);

// Where a run stands in its data.
struct DataCursor {
  int64_t samples = 0;            // consumed since the first step of the run, over all epochs
  int64_t samples_per_epoch = 0;  // 0: the data has no end
  uint64_t seed = 0;              // of the order of the samples
  std::string data;               // what the data is, for people
  uint64_t seal = 0;              // CursorSeal when the checkpoint was written
};
// A key from which a run draws random numbers.
struct RandomKey {
  std::string name;  // "training"
  uint64_t key = 0;
  uint64_t seal = 0;  // KeySeal when the checkpoint was written
};

// CheckpointFacts are what a checkpoint records about the run that wrote it.
struct CheckpointFacts {
  std::string job;     // its name
  std::string job_id;  // of the run; empty: not known, as in checkpoints of earlier versions
  std::string plan_id;
  int64_t step = 0;            // steps done
  int64_t optimizer_step = 0;  // may be negative while gradients are delayed
  std::string schedule;        // ScheduleText of the run (tools/train/checkpoint_header.h)
  // Absent in weights that were imported. A run cannot be resumed without.
  std::optional<DataCursor> cursor;
  std::vector<RandomKey> keys;
};

// A logical tensor, without its data.
struct TensorFacts {
  std::string dtype;  // as in safetensors: "F32", "BF16"
  Shape shape;
  StateOwner owner = StateOwner::kWeight;
  uint64_t content = 0;  // the content sum of all elements
};

// A box of a tensor's elements, row-major, in one file.
struct ShardRecord {
  std::string tensor;
  std::string dtype;
  Shape offset;  // of its first element in the tensor
  Shape shape;
  int64_t begin = 0;  // bytes from the start of the file
  int64_t end = 0;
  std::vector<uint32_t> chunk_sums;  // CRC32C of each chunk_bytes of the file; the last is shorter
  uint64_t content = 0;              // what these elements add to the tensor's content sum
};

// A file of safetensors that one rank has written.
struct ShardFileRecord {
  std::string name;  // in the folder of the checkpoint
  std::string host;  // the host whose disk has the file; empty: a disk that all hosts share
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // the eight bytes of length, and the header
  uint32_t header_sum = 0;
  int64_t step = 0;    // steps done when the states were copied
  std::string job_id;  // as in CheckpointFacts
  int64_t chunk_bytes = kShardChunkBytes;
  std::vector<ShardRecord> shards;
};

struct CheckpointIndex {
  CheckpointFacts facts;
  std::map<std::string, TensorFacts> tensors;
  std::vector<ShardFileRecord> files;
  uint32_t sum = 0;  // the CRC32C at the end of index.pb from which the index was read
};

// Return what binds a cursor or a key to its name and its step. A cursor that was reset, a step
// counter that was reset, or two keys that were swapped have another seal.
uint64_t CursorSeal(const DataCursor& cursor, int64_t step, int64_t optimizer_step);
uint64_t KeySeal(const RandomKey& key);
// Sets the seals of the cursor and of the keys.
void SealFacts(CheckpointFacts* facts);

// A record of a file as a message, for holders of shards in other processes. FromProto returns
// kDataLoss (W0710) if the record contradicts itself; `where` names the message in the error.
proto::CheckpointFile ToProto(const ShardFileRecord& file);
absl::StatusOr<ShardFileRecord> FromProto(proto::CheckpointFile file, const std::string& where);

// Returns the bytes of the file index.pb.
std::string EncodeIndex(const CheckpointIndex& index);
// Returns the sum at the end of such bytes (CheckpointIndex::sum).
uint32_t SumOfIndex(absl::string_view bytes);
// Returns the sum at the end of such a file, and checks nothing; nullopt: no such file, or one that
// is too short.
std::optional<uint32_t> ReadSumOfIndex(const std::string& path, FileSystem* files = MachineFiles());
// Return the index in such bytes or in such a file. kDataLoss (W0710): damaged, too large, or a
// record contradicts itself. kInvalidArgument (W0721): a newer format. kNotFound: no such file.
absl::StatusOr<CheckpointIndex> DecodeIndex(absl::string_view bytes, const std::string& path);
absl::StatusOr<CheckpointIndex> ReadIndex(const std::string& path,
                                          FileSystem* files = MachineFiles());

// Returns a path without the slashes at its end; "/" stays.
std::string WithoutSlashes(std::string path);
// Returns the folder around what has the path, as the path is written; "." around a mere name.
std::string FolderAround(const std::string& path);

// Returns the advice of an error about a damaged checkpoint in `folder` (DIR/step-000000120):
// another checkpoint of the run, and the command that says which are sound.
std::string AnotherCheckpoint(const std::string& folder);

// Checks that each element of each tensor has exactly one owner among the files, and that shards
// have the type and lie within the shape of their tensor. kDataLoss (W0714) names the tensor.
absl::Status CheckOwners(const CheckpointIndex& index, const std::string& path);

}  // namespace weir::store
