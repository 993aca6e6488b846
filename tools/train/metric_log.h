// Collects the reports of a session's ranks by step. Scalars of a step are equal on all ranks that
// report them. The last report counts.
// Thread rule: Report from any thread; Take from the trainer's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/engine/feed.h"
#include "runtime/base/mutex.h"

namespace weir::train {

using StepMetrics = std::map<std::string, double>;  // "loss", "grad_norm", …

class MetricLog final : public actors::MetricSink {
 public:
  void Report(const std::string& metric, int64_t step, int64_t micro_batch, float value) override;
  // Removes and returns all steps reported so far, by step.
  std::map<int64_t, StepMetrics> Take();

 private:
  Mutex mutex_;
  std::map<int64_t, StepMetrics> steps_ ABSL_GUARDED_BY(mutex_);
};

// A MetricLine is one line of a metrics file: {"step": 1, "loss": …}. Names keep the given order. A
// value that is not finite becomes null.
class MetricLine {
 public:
  explicit MetricLine(int64_t step);
  int64_t step() const { return step_; }
  void Add(const std::string& name, double value);
  std::string Text() const;  // without newline

 private:
  const int64_t step_;
  std::string text_;
};

}  // namespace weir::train
