#include "actors/testing/job_sketch.h"

namespace weir::actors {

JobSketch::JobSketch(int num_ranks, int micro_batches) : plans_(num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    plans_[rank].set_rank(rank);
    plans_[rank].set_num_ranks(num_ranks);
    plans_[rank].set_plan_id("sketch");
    plans_[rank].set_micro_batches(micro_batches);
    plans_[rank].set_arena_bytes(64);
  }
}

JobSketch::Actor JobSketch::Add(int rank, const std::string& name, int acts) {
  proto::ActorSpec* actor = plans_[rank].add_actor();
  actor->set_id(plans_[rank].actor_size() - 1);
  actor->set_name(name);
  actor->set_program(-1);
  actor->mutable_rate()->set_acts_per_step(acts > 0 ? acts : plans_[rank].micro_batches());
  return {rank, actor->id()};
}

JobSketch::Actor JobSketch::AddSend(int rank, const std::string& name) {
  const Actor actor = Add(rank, name);
  Spec(actor)->set_kind(proto::ActorSpec::SEND);
  return actor;
}

proto::RegisterSpec* JobSketch::AddRegister(int rank, const std::string& name, int slots,
                                            int64_t tokens) {
  proto::RegisterSpec* r = plans_[rank].add_registers();
  r->set_id(plans_[rank].registers_size() - 1);
  r->set_name(name);
  r->set_slots(slots);
  r->set_tokens_per_step(tokens);
  return r;
}

void JobSketch::Connect(const std::string& name, const End& from, const std::vector<End>& to,
                        int slots) {
  const int64_t tokens = Spec(from.actor)->rate().acts_per_step() / from.period * from.tokens;
  const int id = AddRegister(from.actor.rank, name, slots, tokens)->id();
  proto::OutputPort* out = Spec(from.actor)->add_output();
  out->set_register_id(id);
  out->mutable_span()->set_period(from.period);
  out->mutable_span()->set_tokens(from.tokens);
  for (const End& end : to) {
    proto::InputPort* in = Spec(end.actor)->add_input();
    in->set_register_id(id);
    in->mutable_span()->set_period(end.period);
    in->mutable_span()->set_tokens(end.tokens);
  }
}

void JobSketch::ConnectRanks(const std::string& name, Actor from, Actor to, int slots) {
  const int64_t tokens = Spec(from)->rate().acts_per_step();
  const int edge = ++num_edges_;
  proto::RegisterSpec* out = AddRegister(from.rank, name, slots, tokens);
  out->set_side(proto::RegisterSpec::OUTBOUND);
  out->set_peer(to.rank);
  out->set_edge(edge);
  proto::RegisterSpec* in = AddRegister(to.rank, name, slots, tokens);
  in->set_side(proto::RegisterSpec::INBOUND);
  in->set_peer(from.rank);
  in->set_edge(edge);
  proto::OutputPort* sends = Spec(from)->add_output();
  sends->set_register_id(out->id());
  proto::InputPort* reads = Spec(to)->add_input();
  reads->set_register_id(in->id());
}

void JobSketch::Order(const std::string& name, const std::vector<std::pair<Actor, int>>& entries) {
  proto::StreamOrder* order = plans_[entries[0].first.rank].add_stream_order();
  order->set_name(name);
  for (const auto& [actor, ahead] : entries) {
    proto::StreamOrder::Entry* entry = order->add_entry();
    entry->set_actor(actor.id);
    entry->set_ahead(ahead);
  }
}

}  // namespace weir::actors
