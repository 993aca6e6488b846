#include "actors/plan/verify_plans.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "actors/plan/certificate.h"
#include "actors/plan/group_statement.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

absl::Status Disagree(const std::string& where, const std::string& expected,
                      const std::string& found) {
  return Rejected(
      {"W0506", where, expected, found, "compile all ranks with the same compiler and job"});
}

// Checks that the plans are of the same job, and that no rank comes twice.
absl::Status VerifyHeaders(absl::Span<const Plan> plans) {
  std::set<RankId> ranks;
  const Plan& first = plans[0];
  for (const Plan& plan : plans) {
    const std::string where = absl::StrCat("the plan of rank ", plan.rank);
    if (!ranks.insert(plan.rank).second) return Disagree(where, "one plan per rank", "two");
    if (plan.plan_id != first.plan_id || plan.seed != first.seed ||
        plan.micro_batches != first.micro_batches || plan.num_ranks != first.num_ranks) {
      const auto describe = [](const Plan& p) {
        return absl::StrCat("plan '", p.plan_id, "', seed ", p.seed, ", ", p.micro_batches,
                            " micro-batches, ", p.num_ranks, " ranks");
      };
      return Disagree(where, absl::StrCat(describe(first), ", as rank ", first.rank),
                      describe(plan));
    }
  }
  return absl::OkStatus();
}

std::string Describe(const PlanRegister& r) {
  return absl::StrCat(r.slots, " slots of ", r.bytes, " bytes, ", r.tokens_per_step, " tokens ",
                      r.every == 1 ? "per step" : absl::StrCat("in ", r.every, " steps"), ", ",
                      r.initial_tokens, " at the start");
}

// Describes the acts at both ends of an edge and their times, from the plan of one of the ends.
std::string DescribeEnds(const Plan& plan, const PlanRegister& r) {
  std::string text;
  const auto add = [&](const char* what, const std::string& name, const Rate& rate,
                       const Span& span, const PlanTiming& timing) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", what, " '", name, "': ", rate.acts_per_step,
                    " acts, every ", rate.every, " from ", rate.every_phase, ", period ",
                    span.period, ", tokens ", span.tokens, ", phase ", span.phase, ", start ",
                    timing.start_ns, ", micro-batch stride ", timing.micro_batch_stride_ns,
                    ", chunk stride ", timing.chunk_stride_ns, ", time ", timing.time_ns, " ns");
  };
  const auto far = [&](const char* what) {
    for (const PlanFarActor& actor : r.far) add(what, actor.name, actor, actor.port, actor.timing);
  };
  if (r.side == RegisterSide::kInbound) {
    far("from");
  } else {
    const PlanActor& actor = plan.actors[r.producer.actor];
    add("from", actor.name, actor, actor.outputs[r.producer.port], actor.timing);
  }
  if (r.side == RegisterSide::kOutbound) {
    far("to");
    return text;
  }
  for (const PortRef& consumer : r.consumers) {
    const PlanActor& actor = plan.actors[consumer.actor];
    add("to", actor.name, actor, actor.inputs[consumer.port], actor.timing);
  }
  return text;
}

struct Sides {
  const Plan* out_plan = nullptr;
  const Plan* in_plan = nullptr;
  const PlanRegister* out = nullptr;
  const PlanRegister* in = nullptr;
  RankId out_rank;
  RankId in_rank;
};

absl::StatusOr<std::map<EdgeId, Sides>> PairEdges(absl::Span<const Plan> plans) {
  std::map<EdgeId, Sides> edges;
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
      (out ? sides.out_plan : sides.in_plan) = &plan;
      (out ? sides.out_rank : sides.in_rank) = plan.rank;
    }
  }
  return edges;
}

}  // namespace

absl::Status VerifyPlans(absl::Span<const Plan> plans) {
  for (size_t r = 0; r < plans.size(); ++r) {
    const std::string where = absl::StrCat("plan ", r);
    if (plans[r].rank != RankId(static_cast<int>(r))) {
      return Disagree(where, absl::StrCat("rank ", r), absl::StrCat(plans[r].rank));
    }
    if (plans[r].num_ranks != static_cast<int>(plans.size())) {
      return Disagree(where, absl::StrCat(plans[r].num_ranks, " plans, one per rank"),
                      absl::StrCat(plans.size()));
    }
  }
  return plans.empty() ? absl::OkStatus() : VerifyLocalPlans(plans);
}

absl::Status VerifyLocalPlans(absl::Span<const Plan> plans) {
  if (plans.empty()) return Disagree("this process", "the plan of a rank at least", "none");
  WEIR_RETURN_IF_ERROR(VerifyHeaders(plans));
  std::set<RankId> local;
  for (const Plan& plan : plans) local.insert(plan.rank);
  WEIR_ASSIGN_OR_RETURN(const auto edges, PairEdges(plans));
  for (const auto& [edge, sides] : edges) {
    const std::string where =
        absl::StrCat("edge ", edge, " of register '", (sides.out ? sides.out : sides.in)->name,
                     "' on rank ", sides.out ? sides.out_rank : sides.in_rank);
    if (sides.out == nullptr || sides.in == nullptr) {
      if (local.count((sides.out ? sides.out : sides.in)->peer) == 0) continue;
      return Disagree(
          where, sides.out ? "an inbound register on the peer" : "an outbound register on the peer",
          "none");
    }
    if (sides.out->peer != sides.in_rank || sides.in->peer != sides.out_rank) {
      return Disagree(where, absl::StrCat("peers ", sides.in_rank, " and ", sides.out_rank),
                      absl::StrCat(sides.out->peer, " and ", sides.in->peer));
    }
    if (Describe(*sides.out) != Describe(*sides.in)) {
      return Disagree(where, absl::StrCat(Describe(*sides.out), ", as the sender says"),
                      Describe(*sides.in));
    }
    if (EdgeStatement(*sides.out_plan, *sides.out) != EdgeStatement(*sides.in_plan, *sides.in)) {
      return Disagree(
          where, absl::StrCat(DescribeEnds(*sides.out_plan, *sides.out), ", as the sender says"),
          DescribeEnds(*sides.in_plan, *sides.in));
    }
  }
  return VerifyGroups(plans);
}

}  // namespace weir::actors
