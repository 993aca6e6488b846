#include "tests/fuzz/compile_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "actors/plan.h"
#include "actors/verify_plans.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr int64_t kRanksLowered = 8;
constexpr int64_t kCallsMax = 64;
constexpr int64_t kCallsRefused = 10'000;

absl::Status CheckRefusal(const char* stage, const absl::Status& status) {
  if (ExitCode(status) != 65) return absl::InternalError(absl::StrCat(stage, ": ", status.ToString()));
  if (status.message().size() < 6 || status.message()[0] != 'W') {
    return absl::InternalError(absl::StrCat(stage, " refuses without a code: ", status.ToString()));
  }
  return absl::OkStatus();
}

// Repetitions only take time; what is too many is refused before anything is built.
bool IsLong(const Job& job) {
  int64_t calls = 0;
  for (const Function& function : job.graph().function()) {
    for (const Node& node : function.node()) {
      if (node.repeat() > kCallsMax && node.repeat() <= kCallsRefused) return true;
      if (node.repeat() > 0 && node.repeat() <= kCallsMax) calls += node.repeat();
    }
  }
  return calls > kCallsMax;
}

}  // namespace

absl::Status CheckCompile(const Job& job) {
  if (IsLong(job)) return absl::OkStatus();
  for (PlanMode mode : {PlanMode::kTrain, PlanMode::kEvaluate, PlanMode::kGenerate}) {
    CompileOptions options;
    options.mode = mode;
    absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, options);
    if (!plan.ok()) {
      WEIR_RETURN_IF_ERROR(CheckRefusal("compile", plan.status()));
      continue;
    }
    const int64_t ranks = (*plan)->mesh.num_ranks();
    if (ranks > kRanksLowered) continue;
    std::vector<Plan> plans;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      absl::StatusOr<RankPlan> lowered = LowerForRank(**plan, rank);
      if (!lowered.ok()) {
        WEIR_RETURN_IF_ERROR(CheckRefusal("lower", lowered.status()));
        break;
      }
      absl::StatusOr<Plan> loaded = PlanFromProto(*lowered);
      if (!loaded.ok()) return absl::InternalError(absl::StrCat("rank ", rank, " has a plan that is refused: ", loaded.status().ToString()));
      plans.push_back(*std::move(loaded));
    }
    if (static_cast<int64_t>(plans.size()) < ranks) continue;
    absl::Status together = VerifyPlans(plans);
    if (!together.ok()) return absl::InternalError(absl::StrCat("the plans do not fit together: ", together.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace weir
