#include "tools/fleet/worker_generation.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::fleet {
namespace {

absl::StatusOr<train::TokenRows> TokensOf(const proto::GenerationCommand::Step& step) {
  if (step.rows() < 0) return absl::InternalError(absl::StrCat("a step of ", step.rows(), " rows"));
  train::TokenRows tokens(step.rows());
  for (const proto::GenerationCommand::Input& input : step.input()) {
    if (input.value_size() > 0 && (step.rows() == 0 || input.value_size() % step.rows() != 0)) {
      return absl::InternalError(absl::StrCat("input ", input.name(), " has ", input.value_size(),
                                              " values for ", step.rows(), " rows"));
    }
    tokens.Set(input.name(), {input.value().begin(), input.value().end()});
  }
  return tokens;
}

}  // namespace

absl::StatusOr<train::GenerationPlan> GenerationPlanOf(const proto::GenerationCommand& command) {
  switch (command.plan()) {
    case proto::GenerationCommand::PROMPTS: return train::GenerationPlan::kPrompts;
    case proto::GenerationCommand::STEPS: return train::GenerationPlan::kSteps;
    case proto::GenerationCommand::WINDOWS: return train::GenerationPlan::kWindows;
    default: return absl::InternalError("a plan of another version");
  }
}

proto::GenerationCommand::Plan ToProto(train::GenerationPlan plan) {
  switch (plan) {
    case train::GenerationPlan::kPrompts: return proto::GenerationCommand::PROMPTS;
    case train::GenerationPlan::kSteps: return proto::GenerationCommand::STEPS;
    case train::GenerationPlan::kWindows: break;
  }
  return proto::GenerationCommand::WINDOWS;
}

absl::Status DoGeneration(const proto::GenerationCommand& command, train::GenerationRanks* ranks,
                          proto::WorkerAnswer* answer) {
  WEIR_ASSIGN_OR_RETURN(const train::GenerationPlan plan, GenerationPlanOf(command));
  if (!ranks->IsOpen(plan)) return absl::FailedPreconditionError("the plan is not open");
  switch (command.act_case()) {
    case proto::GenerationCommand::kStep: {
      WEIR_ASSIGN_OR_RETURN(const train::TokenRows tokens, TokensOf(command.step()));
      return ranks->RunStep(plan, tokens);
    }
    case proto::GenerationCommand::kLogits: {
      const auto& rows = command.logits().row();
      WEIR_ASSIGN_OR_RETURN(const auto logits, ranks->Logits(plan, {rows.begin(), rows.end()}));
      for (const std::vector<float>& row : logits)
        answer->mutable_logits()->Add(row.begin(), row.end());
      return absl::OkStatus();
    }
    case proto::GenerationCommand::kCarryCache: {
      if (!ranks->IsOpen(train::GenerationPlan::kPrompts) ||
          !ranks->IsOpen(train::GenerationPlan::kSteps)) {
        return absl::FailedPreconditionError("a plan with a cache is not open");
      }
      WEIR_ASSIGN_OR_RETURN(const bool is_carried, ranks->CarryCache());
      answer->set_lacks_cache(!is_carried);
      return absl::OkStatus();
    }
    case proto::GenerationCommand::kClose: ranks->Close(plan); return absl::OkStatus();
    default: return absl::UnimplementedError("a command of another version");
  }
}

}  // namespace weir::fleet
