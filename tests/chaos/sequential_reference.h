// Computes the expected result of a job without the runtime under test. Acts run one at a time in
// some order that the plans allow, and each token has its own memory. There are no slots, credits,
// messages, devices or protocol; only the plans and the kernels are shared. By Kahn's theorem every
// other order must give the same result. Thread rule: a pure function of its arguments, if feed and
// kernels are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/feed.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"

namespace weir::chaos {

struct Reference {
  // states[{rank, state}] lists the content at first and after each act that touches the state. The
  // last content is the result.
  std::map<std::pair<RankId, StateId>, std::vector<std::string>> states;
  // metrics[{metric, step, micro-batch}] lists the values, sorted.
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<float>> metrics;
};

// kAborted: some acts never become ready. The plans must have a token per span on every port. A
// register may share memory with a state only if the state is the register's first token.
absl::StatusOr<Reference> RunSequentially(absl::Span<const actors::Plan> plans, int64_t steps,
                                          actors::DataFeed& feed);

}  // namespace weir::chaos
