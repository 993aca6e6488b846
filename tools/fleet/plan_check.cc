#include "tools/fleet/plan_check.h"

#include <limits>

#include "runtime/base/status.h"
#include "tools/train/job_session.h"
#include "tools/train/memory_budget.h"

namespace weir::fleet {

absl::StatusOr<IdVector<RankId, int64_t>> CheckPlan(const compiler::LogicalPlan& plan, int threads,
                                                    bool is_on_hosts) {
  train::MemoryBudget budget = train::BudgetOf(*plan.job);
  if (is_on_hosts) {
    budget.machine_bytes = std::numeric_limits<int64_t>::max();  // the hosts check themselves
  } else {
    WEIR_RETURN_IF_ERROR(train::CheckMachine(plan, threads));
  }
  WEIR_ASSIGN_OR_RETURN(const train::NeedAndPlans of,
                        train::NeedAndPlansOf(plan, train::Beside::kNothing));
  WEIR_RETURN_IF_ERROR(train::CheckNeed(plan, train::Beside::kNothing, of.need, budget));
  IdVector<RankId, int64_t> bytes_of_rank;
  for (int32_t rank = 0; rank < plan.places.num_ranks(); ++rank)
    bytes_of_rank.push_back(of.need.bytes_of_stage.at(plan.places.PlaceOf(RankId(rank))));
  return bytes_of_rank;
}

}  // namespace weir::fleet
