// Opens the data of a job and compares it with the model before anything runs. Each input of `main`
// that the model reads is bound to a feed (data.feed, or the feed with the input's name), and
// types, sizes and ranges must fit. No name of a dimension has a meaning: the first dimension of an
// input counts samples, and the second, for text, counts the bytes of a window. Thread rule: pure
// functions, except for opening files; DatasetFeed as dataset.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "actors/engine/feed.h"
#include "proto/job.pb.h"
#include "runtime/store/dataset.h"

namespace weir::train {

int64_t MicroBatches(const proto::Job& job);

// Returns the number of samples in a step: the first dimension of the inputs, which all inputs
// share (W0908). The result for a job whose graph is unsound is one sample.
int64_t SamplesPerStep(const proto::Job& job);

// The items that one step counts, for rates. Tokens are the elements of the largest input that
// looks up rows of a table (embedding) and has a dimension after the samples. A model without such
// an input counts samples.
struct StepItems {
  int64_t count = 1;
  std::string name = "samples";  // or "tokens"
};
// The result for a job whose graph is unsound is one sample.
StepItems ItemsOf(const proto::Job& job);

// Opens the data. The feeds of the dataset get the names of the inputs that take them. Errors:
// those of the graph and of the datasets; W0907 a data.feed entry names no input, or names an input
// twice; W0908 inputs count different numbers of samples.
absl::StatusOr<std::unique_ptr<store::Dataset>> OpenJobData(const proto::Job& job);

// The samples of a job, one by one, to run each of them through the model once.
struct JobSamples {
  std::unique_ptr<store::Dataset> dataset;  // batch n of its held-out part is sample n alone
  int64_t count = 0;
  int64_t batch = 1;  // samples of a step of the job
};
// kTrain: the held-out part of the data, as in an evaluation; kInOrder: all samples. Synthetic data
// have the samples of training.eval_batches steps, at least of one. Errors: those of OpenJobData.
absl::StatusOr<JobSamples> OpenJobSamples(const proto::Job& job, store::DataUse use);

// Feeds a session with samples in order. Step s has the samples from s * batch on. Behind the last
// sample of all, the last step has that sample again.
class SampleFeed final : public actors::DataFeed {
 public:
  // `samples` must outlive the feed, and has at least one sample.
  explicit SampleFeed(const JobSamples* samples) : samples_(samples) {}

  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override;
  std::string SampleText(const std::string& feed, int64_t step, int64_t micro_batch,
                         int64_t row) const override;

 private:
  const JobSamples* samples_;
};

// Feeds a session from one part of a dataset. Step s of the held-out part is batch s modulo the
// number of batches, so that each evaluation starts anew.
class DatasetFeed final : public actors::DataFeed {
 public:
  // `dataset` must outlive the feed.
  DatasetFeed(const store::Dataset* dataset, store::DataPart part, int64_t micro_batches)
      : dataset_(dataset), part_(part), micro_batches_(micro_batches) {}

  // Held-out part: the number of batches an evaluation has.
  void set_batches(int64_t batches) { batches_ = batches; }
  // Training part: BatchPosition::sample_offset of every step. Call before the first Fill.
  void set_sample_offset(int64_t samples) { sample_offset_ = samples; }

  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override;
  std::string SampleText(const std::string& feed, int64_t step, int64_t micro_batch,
                         int64_t row) const override;

 private:
  store::BatchPosition PositionAt(int64_t step, int64_t micro_batch) const;

  const store::Dataset* dataset_;
  store::DataPart part_;
  int64_t micro_batches_;
  int64_t batches_ = 0;
  int64_t sample_offset_ = 0;
};

}  // namespace weir::train
