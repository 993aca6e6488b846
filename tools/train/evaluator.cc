#include "tools/train/evaluator.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "actors/session/initialize_state.h"
#include "runtime/base/status.h"
#include "tools/train/job_variant.h"
#include "tools/train/prepare_training.h"
#include "tools/train/session_states.h"

namespace weir::train {

Evaluation MeanOf(const std::map<int64_t, StepMetrics>& batches, weights::Values values) {
  Evaluation evaluation;
  evaluation.values = values;
  for (const auto& [batch, metrics] : batches) {
    bool defined = true;
    for (const auto& [name, value] : metrics) {
      evaluation.means[name] += value;
      defined = defined && !std::isnan(value);
    }
    ++evaluation.batches;
    if (!defined) ++evaluation.undefined;
  }
  for (auto& [name, sum] : evaluation.means) sum /= static_cast<double>(evaluation.batches);
  return evaluation;
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const proto::Job& job,
                                                             const store::Dataset* dataset,
                                                             JobSessionOptions session) {
  const int64_t batches = EvaluationBatches(job, *dataset);
  if (batches == 0) return std::unique_ptr<Evaluator>();
  std::unique_ptr<Evaluator> evaluator(new Evaluator(dataset, batches, MicroBatches(job)));
  session.mode = compiler::PlanMode::kEvaluate;
  session.feed = &evaluator->feed_;
  session.sink = &evaluator->log_;
  session.first_step = 0;
  session.trace = JobSessionOptions::Trace::kNone;
  // The weights are copied in before the first run, so they are not drawn.
  session.state_init = [drawn = actors::SeededInitializer(job.training().seed())](
                           const actors::PlanState& state, void* memory) {
    return state.state_class == actors::StateClass::kWeight ? absl::OkStatus()
                                                            : drawn(state, memory);
  };
  WEIR_ASSIGN_OR_RETURN(evaluator->opened_, OpenJobSession(EvaluationJob(job), session));
  return evaluator;
}

absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluator::Run() {
  WEIR_RETURN_IF_ERROR(opened_.session->RunSteps(batches_));
  return log_.Take();
}

}  // namespace weir::train
