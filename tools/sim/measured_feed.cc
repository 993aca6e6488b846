#include "tools/sim/measured_feed.h"

#include "runtime/base/status.h"

namespace weir::sim {

absl::StatusOr<std::unique_ptr<MeasuredFeed>> MeasuredFeed::Open(const proto::Job& job) {
  std::unique_ptr<MeasuredFeed> measured(new MeasuredFeed());
  if (job.graph().without_loss()) {
    WEIR_ASSIGN_OR_RETURN(measured->samples_, train::OpenJobSamples(job, store::DataUse::kInOrder));
    measured->feed_ = std::make_unique<train::SampleFeed>(&measured->samples_);
    return measured;
  }
  WEIR_ASSIGN_OR_RETURN(measured->dataset_, train::OpenJobData(job));
  measured->feed_ = std::make_unique<train::DatasetFeed>(
      measured->dataset_.get(), store::DataPart::kTrain, train::MicroBatches(job));
  return measured;
}

}  // namespace weir::sim
