#include "tests/bench/hop_plans.h"

#include "absl/strings/str_cat.h"

namespace weir::bench {
namespace {

ActorSpec* AddActor(int acts_per_step, RankPlan* plan) {
  ActorSpec* actor = plan->add_actor();
  actor->set_id(plan->actor_size() - 1);
  actor->set_name(absl::StrCat("actor ", actor->id()));
  actor->set_program(-1);
  actor->mutable_rate()->set_acts_per_step(acts_per_step);
  actor->set_priority(actor->id());
  return actor;
}

RegisterSpec* AddRegister(int slots, int acts_per_step, RankPlan* plan) {
  RegisterSpec* r = plan->add_registers();
  r->set_id(plan->registers_size() - 1);
  r->set_name(absl::StrCat("register ", r->id()));
  r->set_bytes(kHopBytes);
  r->set_slots(slots);
  r->set_stride(kHopBytes);
  r->set_arena_offset(plan->arena_bytes());
  r->set_tokens_per_step(acts_per_step);
  plan->set_arena_bytes(plan->arena_bytes() + int64_t{kHopBytes} * slots);
  return r;
}

void Read(int register_id, ActorSpec* actor) {
  InputPort* port = actor->add_input();
  port->set_register_id(register_id);
}

void Write(int register_id, ActorSpec* actor) {
  OutputPort* port = actor->add_output();
  port->set_register_id(register_id);
}

}  // namespace

RankPlan ChainPlan(int length, int slots, int acts_per_step) {
  RankPlan plan;
  plan.set_num_ranks(1);
  plan.set_micro_batches(acts_per_step);
  plan.add_program()->set_name("empty");
  for (int i = 0; i < length; ++i) {
    ActorSpec* actor = AddActor(acts_per_step, &plan);
    actor->set_program(0);
    if (i > 0) Read(i - 1, actor);
    if (i + 1 < length) Write(AddRegister(slots, acts_per_step, &plan)->id(), actor);
  }
  return plan;
}

std::vector<RankPlan> PingPongPlans(int acts_per_step) {
  std::vector<RankPlan> plans(2);
  for (int rank = 0; rank < 2; ++rank) {
    RankPlan& plan = plans[rank];
    plan.set_rank(rank);
    plan.set_num_ranks(2);
    plan.set_plan_id("ping-pong");
    plan.set_micro_batches(acts_per_step);
    RegisterSpec* in = AddRegister(2, acts_per_step, &plan);
    in->set_side(RegisterSpec::INBOUND);
    in->set_edge(rank);
    RegisterSpec* out = AddRegister(2, acts_per_step, &plan);
    out->set_side(RegisterSpec::OUTBOUND);
    out->set_edge(1 - rank);
    for (RegisterSpec* r : {in, out}) {
      r->set_peer(1 - rank);
      r->set_initial_tokens(r->edge() == 0 ? 1 : 0);
    }
    ActorSpec* actor = AddActor(acts_per_step, &plan);
    actor->set_kind(ActorSpec::SEND);
    Read(in->id(), actor);
    Write(out->id(), actor);
  }
  return plans;
}

}  // namespace weir::bench
