// The data of a job, opened: from the names of the job (inputs of main, dimensions
// "batch", "sequence", "vocab", "classes") to a Dataset, checked against the model.
// Thread rule: pure functions, but for opening files; DatasetFeed as dataset.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "actors/feed.h"
#include "proto/job.pb.h"
#include "runtime/store/dataset.h"

namespace weir {

// Size of a named dimension of the graph, or `fallback`.
int64_t DimSize(const Job& job, const std::string& name, int64_t fallback);
// The name of the dimension that micro-batches divide.
std::string BatchDim(const Job& job);
int64_t MicroBatches(const Job& job);

// What one step counts, for rates: tokens of text, or samples.
int64_t ItemsPerStep(const Job& job);
const char* ItemName(const Job& job);  // "tokens" or "samples"

// Errors: those of the datasets; kInvalidArgument if an input of main is no feed of the data.
absl::StatusOr<std::unique_ptr<Dataset>> OpenJobData(const Job& job);

// Feeds a session from one part of a dataset. Step s of the held-out part is its batch s
// modulo the batches there are, so that each evaluation starts anew.
class DatasetFeed final : public DataFeed {
 public:
  // `dataset` must outlive the feed.
  DatasetFeed(const Dataset* dataset, DataPart part, int64_t micro_batches)
      : dataset_(dataset), part_(part), micro_batches_(micro_batches) {}

  // Held-out part: the number of batches an evaluation has.
  void set_batches(int64_t batches) { batches_ = batches; }

  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch, const TensorSlice& slice,
                    void* out) override;

 private:
  const Dataset* dataset_;
  DataPart part_;
  int64_t micro_batches_;
  int64_t batches_ = 0;
};

}  // namespace weir
