#include "actors/testing/pair_plan.h"

#include "runtime/base/rate_codec.h"

namespace weir::actors {

proto::RankPlan MakePairPlan(const PairPlan& p) {
  proto::RankPlan plan;
  plan.set_num_ranks(1);
  plan.set_micro_batches(1);
  plan.set_arena_bytes(4096);
  plan.mutable_certificate()->set_steps_per_iteration(p.steps);
  for (int i = 0; i < 2; ++i) {
    proto::ActorSpec* actor = plan.add_actor();
    actor->set_id(i);
    actor->set_name(i == 0 ? "producer" : "consumer");
    actor->set_program(-1);
    const Rate rate =
        i == 0 ? Rate{p.producer_acts, p.chunks, p.producer_every, 0}
               : Rate{p.consumer_acts, p.chunks, p.consumer_every, p.consumer_every_phase};
    *actor->mutable_rate() = ToProto(rate);
  }
  *plan.mutable_actor(0)->add_output()->mutable_span() =
      ToProto(Span{p.producer_period, p.producer_tokens, p.producer_phase});
  *plan.mutable_actor(1)->add_input()->mutable_span() =
      ToProto(Span{p.consumer_period, p.consumer_tokens, p.consumer_phase});
  proto::RegisterSpec* r = plan.add_registers();
  r->set_name("between");
  r->set_slots(p.slots);
  r->set_initial_tokens(p.initial);
  r->set_tokens_per_step(p.tokens);
  r->set_every(p.steps);
  return plan;
}

}  // namespace weir::actors
