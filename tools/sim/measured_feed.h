// The data of a job whose kernels are measured. A job with a loss is fed from its samples to train
// on, as in a training. A job without a loss has no such part: it is fed from all its samples in
// order, and from the last sample after that.
// Thread rule: as dataset.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "actors/engine/feed.h"
#include "proto/job.pb.h"
#include "runtime/store/dataset.h"
#include "tools/train/job_data.h"

namespace weir::sim {

class MeasuredFeed {
 public:
  // Opens the data of the job. Errors: those of train::OpenJobData.
  static absl::StatusOr<std::unique_ptr<MeasuredFeed>> Open(const proto::Job& job);

  // Returns the feed, which lives as long as this object. It takes any number of steps.
  actors::DataFeed* feed() { return feed_.get(); }

 private:
  MeasuredFeed() = default;

  std::unique_ptr<store::Dataset> dataset_;  // of a job with a loss
  train::JobSamples samples_;                // of a job without one
  std::unique_ptr<actors::DataFeed> feed_;   // reads the dataset or the samples
};

}  // namespace weir::sim
