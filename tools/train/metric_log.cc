#include "tools/train/metric_log.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace weir::train {

void MetricLog::Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) {
  MutexLock lock(&mutex_);
  steps_[step][metric] = value;
}

std::map<int64_t, StepMetrics> MetricLog::Take() {
  MutexLock lock(&mutex_);
  std::map<int64_t, StepMetrics> taken;
  taken.swap(steps_);
  return taken;
}

MetricLine::MetricLine(int64_t step) : step_(step), text_(absl::StrCat("{\"step\":", step)) {}

void MetricLine::Add(const std::string& name, double value) {
  // Nine digits restore an f32 exactly.
  absl::StrAppend(&text_, ",", nlohmann::json(name).dump(), ":",
                  std::isfinite(value) ? absl::StrFormat("%.9g", value) : std::string("null"));
}

std::string MetricLine::Text() const { return text_ + "}"; }

}  // namespace weir::train
