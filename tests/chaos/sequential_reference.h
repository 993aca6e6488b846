// What a job must compute, found without any of the runtime that is under test: acts run one
// at a time in some order that the plans allow, each token in memory of its own. No slots,
// credits, messages, devices or protocol; only the plans and the kernels are shared.
// By Kahn's theorem every other order must give the same.
// Thread rule: a pure function of its arguments, if feed and kernels are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/feed.h"
#include "actors/plan.h"

namespace weir::chaos {

struct Reference {
  // By (rank, state): what it holds at first and after each act that touches it. The last is
  // the result.
  std::map<std::pair<int, int>, std::vector<std::string>> states;
  // By (metric, step, micro-batch): the values, sorted.
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<float>> metrics;
};

// kAborted if the acts do not all come to run. The plans must have a token per span on every
// port, and memory that registers share with states only where a state is the first token.
absl::StatusOr<Reference> RunSequentially(absl::Span<const Plan> plans, int64_t steps,
                                          DataFeed& feed);

}  // namespace weir::chaos
