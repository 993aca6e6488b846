// The parts of trainer.h that evaluate weights, and say in words what a training came to.
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/train/job_data.h"
#include "tools/train/prepare_training.h"
#include "tools/train/trainer.h"

namespace weir::train {
namespace {

std::string MeanText(double mean) {
  return std::isnan(mean) ? "undefined" : absl::StrFormat("%.4f", mean);
}

}  // namespace

std::string LossName(const proto::Job& job) {
  return job.graph().loss().empty() ? "loss" : job.graph().loss();
}

absl::StatusOr<Evaluation> EvaluateWeights(const proto::Job& job, const std::string& weights,
                                           int threads_per_device, const std::string& job_file,
                                           weights::Values values) {
  WEIR_ASSIGN_OR_RETURN(const PreparedEvaluation prepared,
                        PrepareEvaluation(job, weights, threads_per_device, job_file, values));
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        weights::OpenValues(weights, values));
  JobSessionOptions session;
  session.threads_per_device = threads_per_device;
  session.plan = prepared.plan;
  WEIR_ASSIGN_OR_RETURN(auto evaluator, Evaluator::Create(job, prepared.dataset.get(), session));
  WEIR_RETURN_IF_ERROR(LoadWeights(std::move(file), {"", job_file}, evaluator->session()));
  WEIR_ASSIGN_OR_RETURN(auto batches, evaluator->Run());
  return MeanOf(batches, values);
}

std::optional<double> BitsPerByte(const proto::Job& job, const Evaluation& evaluation) {
  auto it = evaluation.means.find(LossName(job));
  if (!job.data().has_text() || it == evaluation.means.end() || std::isnan(it->second))
    return std::nullopt;
  return it->second / std::log(2.0);
}

std::string SpeedText(const proto::Job& job, const TrainResult& result) {
  if (result.steps_here == 0) return "";
  const StepItems items = ItemsOf(job);
  const double count = static_cast<double>(items.count * result.steps_here);
  return absl::StrCat(
      Plural(result.steps_here, "step"), " took ", DurationText(result.seconds_here), ", mean ",
      ShortCount(count / std::max(result.seconds_here, 1e-9)), " ", items.name, "/s");
}

std::string EvaluationText(const proto::Job& job, const Evaluation& evaluation) {
  std::string text;
  for (const auto& [name, value] : evaluation.means) {
    if (name != LossName(job)) continue;
    text = absl::StrCat("held-out loss ",
                        evaluation.values == weights::Values::kAverages ? "of the averages " : "",
                        MeanText(value));
  }
  for (const auto& [name, value] : evaluation.means) {
    if (name != LossName(job)) absl::StrAppend(&text, ", ", name, " ", MeanText(value));
  }
  if (auto bits = BitsPerByte(job, evaluation))
    absl::StrAppend(&text, absl::StrFormat(", %.4f bits per byte", *bits));
  absl::StrAppend(&text, " (", evaluation.batches, evaluation.batches == 1 ? " batch" : " batches");
  if (evaluation.undefined > 0)
    absl::StrAppend(&text, "; in ", evaluation.undefined,
                    " no target counts, or weights are not finite");
  return absl::StrCat(text, ")");
}

}  // namespace weir::train
