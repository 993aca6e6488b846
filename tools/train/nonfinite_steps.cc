#include "tools/train/nonfinite_steps.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/job/check_training.h"
#include "runtime/base/loss_scale.h"
#include "tools/train/run_so_far.h"

namespace weir::train {
namespace {

// Each of the first skips is reported, and then each skip whose number is a power of two.
constexpr int64_t kSkipsTold = 3;

const char* TextOf(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

bool IsTold(int64_t number) { return number <= kSkipsTold || (number & (number - 1)) == 0; }

}  // namespace

std::string AdviceOnNonfinite(const proto::Training& training, const std::string& first) {
  const double fixed_scale = training.loss_scale().fixed();
  std::string advice;
  if (absl::StrContains(first, " of the data")) {
    advice = "data without such values, which `weir data show FILE` counts";
  } else {
    // The factor may have multiplied sound gradients beyond the range of f16.
    if (fixed_scale > 0) {
      advice = absl::StrCat("a training.loss_scale.fixed below ", fixed_scale,
                            ", or a loss scale that adapts (without `fixed`); or ");
    }
    absl::StrAppend(&advice, training.optimizer().clip_norm() > 0
                                 ? "a lower training.schedule.learning_rate or warm-up"
                                 : "a lower training.schedule.learning_rate, warm-up or "
                                   "training.optimizer.clip_norm=1");
  }
  return absl::StrCat(advice, compiler::LossScaleAdapts(training)
                                  ? "; or training.precision=BF16, which reaches as far as f32"
                                  : "; or --on-nonfinite skip, which leaves such updates out");
}

std::string NonfiniteSteps::Look(int64_t step, StepMetrics* report) {
  const StepMetrics& metrics = *report;
  const auto loss = metrics.find(loss_), norm = metrics.find("grad_norm"),
             scale = metrics.find("loss_scale");
  const bool loss_is_bad = loss != metrics.end() && !std::isfinite(loss->second);
  const bool norm_is_bad = norm != metrics.end() && !std::isfinite(norm->second);
  const bool adapts = loss_scale_ == LossScale::kAdapts;
  const bool has_scale = adapts && scale != metrics.end();  // steps between updates have none
  // An update looks at the losses of all steps whose gradients it gathers.
  if (bad_loss_.has_value() && step <= *bad_loss_) bad_loss_.reset();  // that step is done again
  if (loss_is_bad) bad_loss_ = step;
  const bool has_norm = norm != metrics.end();
  const bool overflows =
      has_scale && norm_is_bad && !bad_loss_.has_value() && scale->second >= kOverflowScaleLeast;
  if (has_norm) bad_loss_.reset();
  // Such a run is at its end: nothing has changed since its first error.
  if (adapts && on_nonfinite_ == OnNonfinite::kStop && first_.has_value()) return "";
  const bool skips =
      overflows || (norm_is_bad && (on_nonfinite_ == OnNonfinite::kSkip ||
                                    (adapts && on_nonfinite_ == OnNonfinite::kContinue)));
  if (skips) run_->NoteSkipped(step);
  if (has_scale) (*report)["skipped_updates"] = static_cast<double>(run_->num_skipped());
  if (overflows) return LineOfOverflow(step, scale->second);
  if (!loss_is_bad && !norm_is_bad) return "";
  NonfiniteStep bad{step, loss_is_bad, ""};
  if (loss_is_bad) bad.found = absl::StrCat("loss ", TextOf(loss->second));
  if (norm_is_bad)
    absl::StrAppend(&bad.found, loss_is_bad ? ", " : "", "gradient norm ", TextOf(norm->second));
  if (!first_.has_value()) first_ = bad;
  if ((norm_is_bad || adapts) && !first_left_out_.has_value()) first_left_out_ = step;
  if (on_nonfinite_ == OnNonfinite::kSkip && norm_is_bad) return LineOfSkip(bad);
  if (on_nonfinite_ == OnNonfinite::kStop || warned_) return "";
  warned_ = true;
  const bool loses_weights = on_nonfinite_ == OnNonfinite::kContinue && !adapts;
  const char* consequence = skips           ? "; its update is left out"
                            : loses_weights ? "; weights are likely lost"
                            : has_norm      ? "; its gradients are finite and were used"
                                       : "; its update is left out unless the gradients are finite";
  return absl::StrCat(
      "WARNING: step ", step + 1, ": ", bad.found, consequence,
      ". Try a lower training.schedule.learning_rate, warm-up, or training.optimizer.clip_norm=1.");
}

std::string NonfiniteSteps::Summary() const {
  const int64_t skipped = run_->num_skipped();
  if (skipped == 0) return "";
  return absl::StrCat(skipped, skipped == 1 ? " update was" : " updates were",
                      " left out, since gradients were not finite");
}

std::string NonfiniteSteps::LineOfOverflow(int64_t step, double scale) const {
  const int64_t skipped = run_->num_skipped();
  if (!IsTold(skipped)) return "";
  return absl::StrCat("step ", step + 1, ": gradients overflow with a loss scale of ", scale,
                      ": a smaller one follows, and the update is left out (", skipped,
                      skipped == 1 ? " so far)" : " so far; not each is told)");
}

std::string NonfiniteSteps::LineOfSkip(const NonfiniteStep& bad) const {
  const int64_t skipped = run_->num_skipped();
  if (!IsTold(skipped)) return "";
  return absl::StrCat("WARNING: step ", bad.step + 1, ": ", bad.found, "; its update is left out (",
                      skipped, skipped == 1 ? " so far)" : " so far; not each is told)");
}

}  // namespace weir::train
