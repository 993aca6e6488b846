// Writes checkpoint folders for tests. Not for the product. Thread rule: any thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/shard_file.h"
#include "runtime/store/slice_runs.h"
#include "runtime/store/stored_dtype.h"

namespace weir::store {

// A float tensor, and the boxes (offset, shape) that ranks 0, 1, ... hold. One box: rank 0 has all.
struct TensorForTest {
  Shape shape;
  std::vector<float> values;
  std::vector<std::pair<Shape, Shape>> boxes = {};
  StateOwner owner = StateOwner::kWeight;
};

// A FolderForTest is the content of a folder, which a test may change before the folder is written.
struct FolderForTest {
  CheckpointFacts facts;
  std::map<std::string, TensorForTest> tensors;
  std::string host = "";
};

inline CheckpointFacts FactsForTest(int64_t step) {
  CheckpointFacts facts;
  facts.job = "test";
  facts.job_id = "j1";
  facts.plan_id = "p1";
  facts.step = facts.optimizer_step = step;
  facts.schedule = "0.1, constant";
  facts.cursor = DataCursor{step * 4, 100, 7, "synthetic"};
  facts.keys = {{"training", 7}, {"dropout", 11}};
  return facts;
}

// Writes the shards of one rank and returns their record.
inline absl::StatusOr<ShardFileRecord> WriteRankForTest(const std::string& folder, int32_t rank,
                                                        const FolderForTest& from) {
  std::vector<ShardEntry> entries;
  for (const auto& [name, tensor] : from.tensors) {
    const size_t at = static_cast<size_t>(rank);
    if (tensor.boxes.empty() && rank == 0) {
      entries.push_back({name, "F32", Shape(tensor.shape.size(), 0), tensor.shape, tensor.shape});
    } else if (at < tensor.boxes.size()) {
      entries.push_back(
          {name, "F32", tensor.boxes[at].first, tensor.boxes[at].second, tensor.shape});
    }
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                        ShardWriter::Create({folder, ShardFileName(rank), from.host,
                                             from.facts.step, folder, from.facts.job_id},
                                            std::move(entries)));
  for (const ShardEntry& entry : writer->entries()) {
    const TensorForTest& tensor = from.tensors.at(entry.tensor);
    std::vector<float> part(static_cast<size_t>(NumElements(entry.shape)));
    ForEachRun({DType::kF32, entry.shape, entry.offset, entry.global_shape},
               [&](int64_t local, int64_t global, int64_t count) {
                 std::copy_n(tensor.values.begin() + global, count, part.begin() + local);
               });
    WEIR_RETURN_IF_ERROR(
        writer->Append(part.data(), static_cast<int64_t>(part.size() * sizeof(float))));
  }
  return writer->Finish();
}

inline std::map<std::string, TensorFacts> TensorFactsForTest(const FolderForTest& from) {
  std::map<std::string, TensorFacts> facts;
  for (const auto& [name, tensor] : from.tensors) facts[name] = {"F32", tensor.shape, tensor.owner};
  return facts;
}

// Commits a checkpoint of `ranks` ranks into `directory`, and points `latest` to it.
inline absl::Status WriteFolderForTest(const std::string& directory, int32_t ranks,
                                       const FolderForTest& from) {
  WEIR_ASSIGN_OR_RETURN(
      const std::unique_ptr<PendingCheckpoint> pending,
      PendingCheckpoint::Open(directory, from.facts.step, PendingCheckpoint::NewToken(),
                              PendingCheckpoint::Role::kMake));
  std::vector<ShardFileRecord> files;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    WEIR_ASSIGN_OR_RETURN(ShardFileRecord file, WriteRankForTest(pending->folder(), rank, from));
    files.push_back(std::move(file));
  }
  WEIR_ASSIGN_OR_RETURN(
      const CheckpointIndex index,
      MakeIndex(from.facts, TensorFactsForTest(from), std::move(files), pending->final_path()));
  WEIR_RETURN_IF_ERROR(pending->Publish(index));
  return PointLatest(directory, from.facts.step);
}

}  // namespace weir::store
