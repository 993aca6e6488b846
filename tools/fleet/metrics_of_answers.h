// What steps have reported, as the answers of workers tell it. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "proto/worker.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/train/metric_log.h"

namespace weir::fleet {

// Collects metrics by step. Scalars of a step are equal on all ranks that report them.
std::map<int64_t, train::StepMetrics> MetricsOf(
    const IdVector<WorkerId, proto::WorkerAnswer>& answers);

// Returns whether each of the steps [begin, end) has reported all of these metrics.
bool HasMetrics(const std::map<int64_t, train::StepMetrics>& reported, int64_t begin, int64_t end,
                const std::set<std::string>& names);

}  // namespace weir::fleet
