#include "actors/engine/stall_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/engine/holders.h"

namespace weir {
std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max) {
  std::vector<const Plan*> plans;
  for (const RankExecutor* rank : ranks) plans.push_back(&rank->plan());
  const Holders holders(plans);
  std::string text;
  int lines = 0, left_out = 0;
  for (const RankExecutor* rank : ranks) {
    const Plan& plan = rank->plan();
    for (const PlanActor& actor : plan.actors) {
      const ActorMachine& machine = rank->machine(actor.id);
      const ActorState state = machine.state();
      if (state == ActorState::kDone) continue;
      if (++lines > lines_max) {
        ++left_out;
        continue;
      }
      absl::StrAppend(&text, "\n  rank ", plan.rank, " actor '", actor.name, "': ", machine.acts_done(), " of ",
                      machine.limit(), " acts, ", Name(state));
      if (state == ActorState::kWaitsForInput || state == ActorState::kWaitsForCredit) {
        const int reg = machine.waits_for().value();
        absl::StrAppend(&text, " '", plan.registers[reg].name, "', held by ",
                        state == ActorState::kWaitsForInput ? holders.OfToken(plan, reg) : holders.OfSlot(plan, reg));
      }
    }
  }
  if (left_out > 0) absl::StrAppend(&text, "\n  and ", left_out, " more");
  return text;
}

}  // namespace weir
