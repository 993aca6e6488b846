#include "actors/testing/pair_plan.h"

namespace weir {

RankPlan MakePairPlan(const PairPlan& p) {
  RankPlan plan;
  plan.set_num_ranks(1);
  plan.set_micro_batches(1);
  plan.set_arena_bytes(4096);
  plan.mutable_certificate()->set_steps_per_iteration(p.steps);
  for (int i = 0; i < 2; ++i) {
    ActorSpec* actor = plan.add_actor();
    actor->set_id(i);
    actor->set_name(i == 0 ? "producer" : "consumer");
    actor->set_program(-1);
    actor->set_chunks(p.chunks);
    actor->set_acts_per_step(i == 0 ? p.producer_acts : p.consumer_acts);
    actor->set_every(i == 0 ? p.producer_every : p.consumer_every);
    if (i == 1) actor->set_every_phase(p.consumer_every_phase);
  }
  OutputPort* out = plan.mutable_actor(0)->add_output();
  out->set_period(p.producer_period);
  out->set_tokens(p.producer_tokens);
  out->set_phase(p.producer_phase);
  InputPort* in = plan.mutable_actor(1)->add_input();
  in->set_period(p.consumer_period);
  in->set_tokens(p.consumer_tokens);
  in->set_phase(p.consumer_phase);
  RegisterSpec* r = plan.add_registers();
  r->set_name("between");
  r->set_slots(p.slots);
  r->set_initial_tokens(p.initial);
  r->set_tokens_per_step(p.tokens);
  r->set_every(p.steps);
  return plan;
}

}  // namespace weir
