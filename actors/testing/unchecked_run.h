// Runs plans without checks and without a session, which would refuse a plan without a certificate,
// to see what such a plan does. Kernels are left out. Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "actors/session/session.h"
#include "proto/plan.pb.h"

namespace weir::actors {

struct UncheckedRun {
  SessionOptions::EngineKind engine = SessionOptions::EngineKind::kSim;
  uint64_t seed = 1;  // kSim
  int64_t first_step = 0;
  std::vector<int64_t> steps = {1};  // of each run; the ranks are at rest after each run
};

absl::Status RunUnchecked(const std::vector<proto::RankPlan>& plans, const UncheckedRun& run);

}  // namespace weir::actors
