#include "runtime/control/outcome.h"

#include <optional>
#include <string>

#include "runtime/base/problem.h"

namespace weir::control {

proto::Outcome ToOutcome(const absl::Status& status) {
  proto::Outcome outcome;
  outcome.set_code(static_cast<int32_t>(status.code()));
  if (const std::optional<Problem> problem = ProblemOf(status); problem.has_value()) {
    proto::ProblemFact* fact = outcome.mutable_problem();
    fact->set_code(problem->code);
    fact->set_where(problem->where);
    fact->set_expected(problem->expected);
    fact->set_found(problem->found);
    fact->set_hint(problem->hint);
    if (outcome.ByteSizeLong() <= kOutcomeBytesMax) return outcome;
    outcome.clear_problem();
  }
  outcome.set_message(std::string(status.message().substr(0, kOutcomeBytesMax)));
  return outcome;
}

absl::Status FromOutcome(const proto::Outcome& outcome) {
  const bool known = outcome.code() >= 0 &&
                     outcome.code() <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  const auto code =
      known ? static_cast<absl::StatusCode>(outcome.code()) : absl::StatusCode::kUnknown;
  if (!outcome.has_problem()) return absl::Status(code, outcome.message());
  const proto::ProblemFact& fact = outcome.problem();
  return WithProblems(code,
                      {{fact.code(), fact.where(), fact.expected(), fact.found(), fact.hint()}});
}

}  // namespace weir::control
