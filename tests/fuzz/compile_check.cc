#include "tests/fuzz/compile_check.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/plan.h"
#include "actors/plan/verify_plans.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

constexpr int64_t kCallsMax = 64;
constexpr int64_t kCallsRefused = 10'000;
constexpr size_t kCodeLength = 5;  // as in W0417

// Returns the code of a refusal.
absl::StatusOr<std::string> CodeOf(const char* stage, const absl::Status& status) {
  if (ExitCode(status) != 65)
    return absl::InternalError(absl::StrCat(stage, ": ", status.ToString()));
  const std::string message(status.message());
  if (message.size() <= kCodeLength || message[0] != 'W') {
    return absl::InternalError(absl::StrCat(stage, " refuses without a code: ", status.ToString()));
  }
  return message.substr(0, kCodeLength);
}

std::vector<int64_t> RanksToLower(int64_t ranks, int64_t most) {
  std::set<int64_t> chosen;
  const int64_t count = std::min(ranks, most);
  for (int64_t i = 0; i < count; ++i) chosen.insert(count == 1 ? 0 : i * (ranks - 1) / (count - 1));
  return {chosen.begin(), chosen.end()};
}

// Returns "" if all plans are sound and fit together.
absl::StatusOr<std::string> CheckRanks(const LogicalPlan& logical, int64_t ranks_lowered_max) {
  std::vector<Plan> plans;
  for (int64_t rank : RanksToLower(logical.mesh.num_ranks(), ranks_lowered_max)) {
    absl::StatusOr<RankPlan> lowered = LowerForRank(logical, rank);
    if (!lowered.ok()) return CodeOf("lower", lowered.status());
    absl::StatusOr<Plan> loaded = PlanFromProto(*lowered);
    if (!loaded.ok())
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has a plan that is refused: ", loaded.status().ToString()));
    if (absl::Status proof = CheckCertificate(*loaded); !proof.ok()) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has a plan whose proof is refused: ", proof.ToString()));
    }
    plans.push_back(*std::move(loaded));
  }
  const bool all = static_cast<int64_t>(plans.size()) == logical.mesh.num_ranks();
  if (absl::Status together = all ? VerifyPlans(plans) : VerifyLocalPlans(plans); !together.ok()) {
    return absl::InternalError(
        absl::StrCat("the plans do not fit together: ", together.ToString()));
  }
  return "";
}

}  // namespace

bool RepeatsVeryOften(const Job& job) {
  int64_t calls = 0;
  for (const Function& function : job.graph().function()) {
    for (const Node& node : function.node()) {
      if (node.repeat() > kCallsMax && node.repeat() <= kCallsRefused) return true;
      if (node.repeat() > 0 && node.repeat() <= kCallsMax) calls += node.repeat();
    }
  }
  return calls > kCallsMax;
}

absl::StatusOr<std::string> CheckCompile(const Job& job, const CompileCheck& check) {
  std::string refused;
  for (PlanMode mode : {PlanMode::kTrain, PlanMode::kEvaluate, PlanMode::kGenerate}) {
    CompileOptions options;
    options.mode = mode;
    absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, options);
    std::string code;
    if (plan.ok()) {
      WEIR_ASSIGN_OR_RETURN(code, CheckRanks(**plan, check.ranks_lowered_max));
    } else {
      WEIR_ASSIGN_OR_RETURN(code, CodeOf("compile", plan.status()));
    }
    if (mode == PlanMode::kTrain) refused = code;
  }
  return refused;
}

}  // namespace weir
