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

namespace weir::fuzz {
namespace {

constexpr int64_t kCallsMax = 64;
constexpr int64_t kCallsRefused = 10'000;
constexpr size_t kCodeLength = 5;  // as in W0426

std::vector<int64_t> RanksToLower(int64_t ranks, int64_t most) {
  std::set<int64_t> chosen;
  const int64_t count = std::min(ranks, most);
  for (int64_t i = 0; i < count; ++i) chosen.insert(count == 1 ? 0 : i * (ranks - 1) / (count - 1));
  return {chosen.begin(), chosen.end()};
}

// Checks that stages which share a plan have the memory of their own plans.
absl::Status CheckFirstRanks(const compiler::LogicalPlan& logical) {
  if (logical.places.size() < 2) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::vector<compiler::FirstRank> firsts,
                        compiler::LowerFirstRanks(logical));
  for (int64_t stage = 0; stage < logical.places.size(); ++stage) {
    const compiler::FirstRank& first = firsts[stage];
    if (first.plan_stage == stage) continue;
    WEIR_ASSIGN_OR_RETURN(const proto::RankPlan own,
                          compiler::LowerForRank(logical, logical.places.RankAt(stage, 0)));
    if (own.arena_bytes() == first.arena_bytes) continue;
    return absl::InternalError(absl::StrCat("stage ", stage, " takes ", own.arena_bytes(),
                                            " bytes, but ", first.arena_bytes,
                                            " by the plan of stage ", first.plan_stage));
  }
  return absl::OkStatus();
}

// Returns "" if all plans are sound and fit together.
absl::StatusOr<std::string> CheckRanks(const compiler::LogicalPlan& logical,
                                       int64_t ranks_lowered_max) {
  std::vector<actors::Plan> plans;
  for (int64_t rank : RanksToLower(logical.places.num_ranks(), ranks_lowered_max)) {
    absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(logical, RankId(rank));
    if (!lowered.ok()) return CodeOf("lower", lowered.status());
    absl::StatusOr<actors::Plan> loaded = actors::PlanFromProto(*lowered);
    if (!loaded.ok())
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has a plan that is refused: ", loaded.status().ToString()));
    if (absl::Status proof = actors::CheckCertificate(*loaded); !proof.ok()) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has a plan whose proof is refused: ", proof.ToString()));
    }
    plans.push_back(*std::move(loaded));
  }
  WEIR_RETURN_IF_ERROR(CheckFirstRanks(logical));
  const bool all = static_cast<int64_t>(plans.size()) == logical.places.num_ranks();
  if (absl::Status together = all ? actors::VerifyPlans(plans) : actors::VerifyLocalPlans(plans);
      !together.ok()) {
    return absl::InternalError(
        absl::StrCat("the plans do not fit together: ", together.ToString()));
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> CodeOf(const char* stage, const absl::Status& status) {
  if (ExitCode(status) != 65)
    return absl::InternalError(absl::StrCat(stage, ": ", status.ToString()));
  const std::string message(status.message());
  if (message.size() <= kCodeLength || message[0] != 'W') {
    return absl::InternalError(absl::StrCat(stage, " refuses without a code: ", status.ToString()));
  }
  return message.substr(0, kCodeLength);
}

bool RepeatsVeryOften(const proto::Job& job) {
  int64_t calls = 0;
  for (const proto::Function& function : job.graph().function()) {
    for (const proto::Node& node : function.node()) {
      if (node.repeat() > kCallsMax && node.repeat() <= kCallsRefused) return true;
      if (node.repeat() > 0 && node.repeat() <= kCallsMax) calls += node.repeat();
    }
  }
  return calls > kCallsMax;
}

absl::StatusOr<std::string> CheckCompile(const proto::Job& job, const CompileCheck& check) {
  std::string refused;
  for (compiler::PlanMode mode :
       {compiler::PlanMode::kTrain, compiler::PlanMode::kEvaluate, compiler::PlanMode::kGenerate}) {
    compiler::CompileOptions options;
    options.mode = mode;
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
        compiler::CompileJob(job, options);
    std::string code;
    if (plan.ok()) {
      WEIR_ASSIGN_OR_RETURN(code, CheckRanks(**plan, check.ranks_lowered_max));
    } else {
      WEIR_ASSIGN_OR_RETURN(code, CodeOf("compile", plan.status()));
    }
    if (mode == compiler::PlanMode::kTrain) refused = code;
  }
  return refused;
}

}  // namespace weir::fuzz
