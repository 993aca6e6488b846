// Runs the held-out part of a job's data through its model. One evaluator serves
// many evaluations during a run; its plan is compiled once.
// Thread rule: one thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/metric_log.h"
#include "tools/train/trainer.h"

namespace weir {

class Evaluator {
 public:
  // Null if the dataset holds nothing out. `dataset` must outlive the evaluator.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const Job& job, const Dataset* dataset,
                                                           int threads_per_device);

  // Over the job's eval_batches batches (0: all).
  absl::StatusOr<Evaluation> Run();
  Session* session() { return opened_.session.get(); }

 private:
  Evaluator(const Dataset* dataset, int64_t batches, int64_t micro_batches)
      : batches_(batches), feed_(dataset, DataPart::kHeldOut, micro_batches) {
    feed_.set_batches(batches);
  }

  int64_t batches_;
  DatasetFeed feed_;
  MetricLog log_;
  JobSession opened_;
};

}  // namespace weir
