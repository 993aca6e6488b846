#include "tests/bench/hop_plans.h"

#include "absl/strings/str_cat.h"

namespace weir::bench {
namespace {

proto::ActorSpec* AddActor(int acts_per_step, proto::RankPlan* plan) {
  proto::ActorSpec* actor = plan->add_actor();
  actor->set_id(plan->actor_size() - 1);
  actor->set_name(absl::StrCat("actor ", actor->id()));
  actor->set_program(-1);
  actor->mutable_rate()->set_acts_per_step(acts_per_step);
  actor->set_priority(actor->id());
  return actor;
}

proto::RegisterSpec* AddRegister(int slots, int acts_per_step, proto::RankPlan* plan) {
  proto::RegisterSpec* r = plan->add_registers();
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

void Read(int register_id, proto::ActorSpec* actor) {
  proto::InputPort* port = actor->add_input();
  port->set_register_id(register_id);
}

void Write(int register_id, proto::ActorSpec* actor) {
  proto::OutputPort* port = actor->add_output();
  port->set_register_id(register_id);
}

}  // namespace

proto::RankPlan ChainPlan(int length, int slots, int acts_per_step) {
  proto::RankPlan plan;
  plan.set_num_ranks(1);
  plan.set_micro_batches(acts_per_step);
  plan.add_program()->set_name("empty");
  for (int i = 0; i < length; ++i) {
    proto::ActorSpec* actor = AddActor(acts_per_step, &plan);
    actor->set_program(0);
    if (i > 0) Read(i - 1, actor);
    if (i + 1 < length) Write(AddRegister(slots, acts_per_step, &plan)->id(), actor);
  }
  return plan;
}

std::vector<proto::RankPlan> PingPongPlans(int acts_per_step) {
  std::vector<proto::RankPlan> plans(2);
  for (int rank = 0; rank < 2; ++rank) {
    proto::RankPlan& plan = plans[rank];
    plan.set_rank(rank);
    plan.set_num_ranks(2);
    plan.set_plan_id("ping-pong");
    plan.set_micro_batches(acts_per_step);
    proto::RegisterSpec* in = AddRegister(2, acts_per_step, &plan);
    in->set_side(proto::RegisterSpec::INBOUND);
    in->set_edge(rank);
    proto::RegisterSpec* out = AddRegister(2, acts_per_step, &plan);
    out->set_side(proto::RegisterSpec::OUTBOUND);
    out->set_edge(1 - rank);
    for (proto::RegisterSpec* r : {in, out}) {
      r->set_peer(1 - rank);
      r->set_initial_tokens(r->edge() == 0 ? 1 : 0);
    }
    proto::ActorSpec* actor = AddActor(acts_per_step, &plan);
    actor->set_kind(proto::ActorSpec::SEND);
    Read(in->id(), actor);
    Write(out->id(), actor);
  }
  return plans;
}

}  // namespace weir::bench
