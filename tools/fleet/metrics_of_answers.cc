#include "tools/fleet/metrics_of_answers.h"

#include <algorithm>

namespace weir::fleet {

std::map<int64_t, train::StepMetrics> MetricsOf(
    const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  std::map<int64_t, train::StepMetrics> steps;
  for (const proto::WorkerAnswer& answer : answers) {
    for (const proto::MetricFact& fact : answer.metric())
      steps[fact.step()].emplace(fact.name(), fact.value());
  }
  return steps;
}

bool HasMetrics(const std::map<int64_t, train::StepMetrics>& reported, int64_t begin, int64_t end,
                const std::set<std::string>& names) {
  for (int64_t step = begin; step < end; ++step) {
    const auto found = reported.find(step);
    if (found == reported.end()) return false;
    const train::StepMetrics& metrics = found->second;
    if (!std::all_of(names.begin(), names.end(),
                     [&metrics](const std::string& name) { return metrics.count(name) > 0; }))
      return false;
  }
  return true;
}

}  // namespace weir::fleet
