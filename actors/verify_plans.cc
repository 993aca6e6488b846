#include "actors/verify_plans.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

absl::Status Disagree(const std::string& where, const std::string& expected, const std::string& found) {
  return Rejected({"W0506", where, expected, found, "compile all ranks with the same compiler and job"});
}

absl::Status VerifyHeaders(absl::Span<const Plan> plans) {
  for (size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    const std::string where = absl::StrCat("plan ", r);
    if (plan.rank != static_cast<int>(r)) {
      return Disagree(where, absl::StrCat("rank ", r), absl::StrCat(plan.rank));
    }
    if (plan.num_ranks != static_cast<int>(plans.size())) {
      return Disagree(where, absl::StrCat(plan.num_ranks, " plans, one per rank"), absl::StrCat(plans.size()));
    }
    if (plan.plan_id != plans[0].plan_id || plan.seed != plans[0].seed ||
        plan.micro_batches != plans[0].micro_batches) {
      return Disagree(where, absl::StrCat("plan '", plans[0].plan_id, "', seed ", plans[0].seed, ", ",
                                          plans[0].micro_batches, " micro-batches, as rank 0"),
                      absl::StrCat("plan '", plan.plan_id, "', seed ", plan.seed, ", ", plan.micro_batches));
    }
  }
  return absl::OkStatus();
}

std::string Describe(const PlanRegister& r) {
  return absl::StrCat(r.slots, " slots of ", r.bytes, " bytes, ", r.tokens_per_step, " tokens per step, ",
                      r.initial_tokens, " at the start");
}

}  // namespace

absl::Status VerifyPlans(absl::Span<const Plan> plans) {
  WEIR_RETURN_IF_ERROR(VerifyHeaders(plans));
  struct Sides {
    const PlanRegister* out = nullptr;
    const PlanRegister* in = nullptr;
    int out_rank = -1;
    int in_rank = -1;
  };
  std::map<uint64_t, Sides> edges;
  for (const Plan& plan : plans) {
    for (const PlanRegister& r : plan.registers) {
      if (r.side == RegisterSide::kLocal) continue;
      Sides& sides = edges[r.edge];
      const bool out = r.side == RegisterSide::kOutbound;
      if ((out ? sides.out : sides.in) != nullptr) {
        return Disagree(absl::StrCat("rank ", plan.rank, ", register '", r.name, "'"),
                        absl::StrCat("one ", Name(r.side), " register of edge ", r.edge), "two");
      }
      (out ? sides.out : sides.in) = &r;
      (out ? sides.out_rank : sides.in_rank) = plan.rank;
    }
  }
  for (const auto& [edge, sides] : edges) {
    const std::string where = absl::StrCat("edge ", edge, " of register '", (sides.out ? sides.out : sides.in)->name,
                                           "' on rank ", sides.out ? sides.out_rank : sides.in_rank);
    if (sides.out == nullptr || sides.in == nullptr) {
      return Disagree(where, sides.out ? "an inbound register on the peer" : "an outbound register on the peer",
                      "none");
    }
    if (sides.out->peer != sides.in_rank || sides.in->peer != sides.out_rank) {
      return Disagree(where, absl::StrCat("peers ", sides.in_rank, " and ", sides.out_rank),
                      absl::StrCat(sides.out->peer, " and ", sides.in->peer));
    }
    if (Describe(*sides.out) != Describe(*sides.in)) {
      return Disagree(where, absl::StrCat(Describe(*sides.out), ", as the sender says"), Describe(*sides.in));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
