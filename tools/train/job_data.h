// The data of a job, opened and compared with the model before anything runs: each input of `main`
// that the model reads is bound to a feed (data.feed, or the feed of its own name), and types,
// sizes and ranges must fit. No name of a dimension has a meaning: the first dimension of an input
// counts samples, and the second, for text, the bytes of a window. Thread rule: pure functions, but
// for opening files; DatasetFeed as dataset.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/feed.h"
#include "proto/job.pb.h"
#include "runtime/store/dataset.h"

namespace weir {

int64_t MicroBatches(const Job& job);

// What one step counts, for rates. Tokens: the elements of the largest input that looks up rows of
// a table (embedding) and has a dimension after the samples. A model without such an input counts
// samples.
struct StepItems {
  int64_t count = 1;
  std::string name = "samples";  // or "tokens"
};
// The result for a job whose graph is unsound is one sample.
StepItems ItemsOf(const Job& job);

// The feeds of the dataset are called as the inputs that take them. Errors: those of the graph and
// of the datasets; W0907 a data.feed entry that names no input, or an input twice; W0908 inputs
// that count different numbers of samples.
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

  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override;
  std::string SampleText(const std::string& feed, int64_t step, int64_t micro_batch,
                         int64_t row) const override;

 private:
  BatchPosition PositionAt(int64_t step, int64_t micro_batch) const;

  const Dataset* dataset_;
  DataPart part_;
  int64_t micro_batches_;
  int64_t batches_ = 0;
};

}  // namespace weir
