#include "tools/train/evaluator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/train/job_variant.h"

namespace weir {

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const Job& job, const Dataset* dataset,
                                                             int threads_per_device) {
  int64_t batches = dataset->num_held_out_batches();
  if (job.training().eval_batches() > 0) batches = std::min(batches, job.training().eval_batches());
  if (batches == 0) return std::unique_ptr<Evaluator>();
  std::unique_ptr<Evaluator> evaluator(new Evaluator(dataset, batches, MicroBatches(job)));
  JobSessionOptions options;
  options.mode = PlanMode::kEvaluate;
  options.threads_per_device = threads_per_device;
  options.feed = &evaluator->feed_;
  options.sink = &evaluator->log_;
  WEIR_ASSIGN_OR_RETURN(evaluator->opened_, OpenJobSession(EvaluationJob(job), options));
  return evaluator;
}

absl::StatusOr<Evaluation> Evaluator::Run() {
  WEIR_RETURN_IF_ERROR(opened_.session->RunSteps(batches_));
  Evaluation evaluation;
  for (const auto& [step, metrics] : log_.Take()) {
    for (const auto& [name, value] : metrics) evaluation.means[name] += value;
    ++evaluation.batches;
  }
  if (evaluation.batches != batches_) {
    return absl::InternalError(absl::StrCat("W0073: expected metrics of ", batches_, " batches; found ", evaluation.batches, "."));
  }
  for (auto& [name, sum] : evaluation.means) sum /= static_cast<double>(evaluation.batches);
  return evaluation;
}

}  // namespace weir
