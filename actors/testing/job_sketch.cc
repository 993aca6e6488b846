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

JobSketch::Actor JobSketch::AddCollective(int rank, const std::string& name,
                                          const std::vector<int>& group, const std::string& dtype) {
  const Actor actor = Add(rank, name);
  Spec(actor)->set_kind(proto::ActorSpec::COLLECTIVE);
  Spec(actor)->set_program(plans_[rank].program_size());
  proto::KernelCall* call = plans_[rank].add_program()->add_call();
  call->set_op("collective");
  for (int member : group) call->mutable_collective()->add_rank(member);
  for (proto::Operand* operand : {call->add_input(), call->add_output()}) {
    operand->set_place(proto::Operand::SCRATCH);
    operand->mutable_slice()->set_dtype(dtype);
    operand->mutable_slice()->add_shape(0);
  }
  return actor;
}

void JobSketch::SetTime(Actor actor, int64_t start_ns, int64_t iteration_ns) {
  Spec(actor)->mutable_timing()->set_start_ns(start_ns);
  Spec(actor)->mutable_timing()->set_time_ns(1);
  plans_[actor.rank].mutable_certificate()->set_iteration_ns(iteration_ns);
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
