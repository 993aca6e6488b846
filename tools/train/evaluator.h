// Runs the held-out part of a job's data through its model. One evaluator serves many evaluations
// during a run, and its plan is compiled once.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/metric_log.h"
#include "tools/weights/averages.h"

namespace weir::train {

struct Evaluation {
  // The mean over the batches, by scalar output of the model. The mean is not a number (NaN) if an
  // output of a batch is not a number, as the loss of a batch in which no target counts.
  std::map<std::string, double> means;
  int64_t batches = 0;
  int64_t undefined = 0;  // batches with an output that is not a number
  weights::Values values = weights::Values::kWeights;  // what was evaluated
};
Evaluation MeanOf(const std::map<int64_t, StepMetrics>& batches, weights::Values values);

class Evaluator {
 public:
  // Null if the dataset holds nothing out. `dataset` must outlive the evaluator. Only ranks,
  // network and threads of `session` count.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const proto::Job& job,
                                                           const store::Dataset* dataset,
                                                           JobSessionOptions session);

  // Runs the job's eval_batches batches (0: all). Returns what the local ranks reported, by batch.
  absl::StatusOr<std::map<int64_t, StepMetrics>> Run();
  int64_t batches() const { return batches_; }
  actors::Session* session() const { return opened_.session.get(); }
  std::shared_ptr<const compiler::LogicalPlan> plan() const { return opened_.plan; }

 private:
  Evaluator(const store::Dataset* dataset, int64_t batches, int64_t micro_batches)
      : batches_(batches), feed_(dataset, store::DataPart::kHeldOut, micro_batches) {
    feed_.set_batches(batches);
  }

  int64_t batches_;
  DatasetFeed feed_;
  MetricLog log_;
  JobSession opened_;
};

}  // namespace weir::train
