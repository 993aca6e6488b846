#include "actors/testing/pipeline_job.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace weir::actors {
namespace {

constexpr int kEdgesPerStage = 2;

// Adds parts to one rank's plan and gives them memory.
class StageBuilder {
 public:
  StageBuilder(const PipelineJob& job, int stage) : job_(job), stage_(stage) {
    plan_.set_rank(stage);
    plan_.set_num_ranks(job.num_stages);
    plan_.set_plan_id("pipeline");
    plan_.set_seed(11);
    plan_.set_micro_batches(job.micro_batches);
    plan_.set_device("stage " + std::to_string(stage));
    plan_.set_stage(stage);
    plan_.set_num_stages(job.num_stages);
    if (job.num_queues > 1) plan_.set_num_queues(job.num_queues);
    if (job.depth > 1) plan_.set_depth(job.depth);
  }

  proto::RankPlan Build() {
    const int m = job_.micro_batches,
              stash_slots = job_.stash_slots > 0 ? job_.stash_slots : job_.num_stages - stage_;
    const bool first = stage_ == 0, last = stage_ == job_.num_stages - 1;
    const int state = State();
    const int in = first ? Register("data", 2, m) : Inbound("activation in", stage_ - 1, 0);
    const int weight = Register("weight", 1, 1, 1);
    const int stash = Register("stash", stash_slots, m);
    const int gradient_in = last ? -1 : Inbound("gradient in", stage_ + 1, 1);
    const int gradient = Register("gradient", 1, m);
    const int sum = Register("sum", 1, 1);
    if (first) Source(in);

    proto::ActorSpec* forward =
        Actor("forward", m, proto::ActorSpec::FORWARD, Program("test_mix", 2));
    Inputs(forward, {{in, 1}, {weight, m}});
    Outputs(forward, {{stash, 1}});
    if (!last) {
      const int out = Register("activation", 1, m);
      Outputs(forward, {{out, 1}});
      Call(forward->program(), "test_mix", {proto::Operand::INPUT, proto::Operand::INPUT},
           proto::Operand::OUTPUT, 1);
      Send("send activation", out, Outbound("activation out", stage_ + 1, 0));
    }
    proto::ActorSpec* backward =
        Actor("backward", m, proto::ActorSpec::BACKWARD, Program("test_mix", last ? 2 : 3));
    backward->set_priority(10);
    Inputs(backward, {{stash, 1}, {weight, m}});
    if (!last) Inputs(backward, {{gradient_in, 1}});
    Outputs(backward, {{gradient, 1}});
    if (!first) Send("send gradient", gradient, Outbound("gradient out", stage_ - 1, 1));

    proto::ActorSpec* accumulate =
        Actor("accumulate", m, proto::ActorSpec::UPDATE, Program("test_accumulate", 1));
    accumulate->set_priority(20);
    Inputs(accumulate, {{gradient, 1}});
    Outputs(accumulate, {{sum, m}});
    proto::ActorSpec* update = Actor("update", 1, proto::ActorSpec::UPDATE, UpdateProgram());
    update->set_priority(20);
    update->add_state(state);
    Inputs(update, {{sum, 1}});
    Outputs(update, {{weight, 1}});
    plan_.set_arena_bytes(end_);
    return plan_;
  }

 private:
  int64_t bytes() const { return int64_t{4} * job_.words; }
  int64_t Allocate(int slots) {
    const int64_t at = end_;
    end_ += (bytes() + 63) / 64 * 64 * slots;
    return at;
  }
  int State() {
    proto::StateSpec* state = plan_.add_state();
    state->set_name("weight");
    SetSlice(state->mutable_slice());
    state->set_arena_offset(Allocate(1));
    return 0;
  }
  int Register(const std::string& name, int slots, int tokens, int initial = 0) {
    proto::RegisterSpec* r = plan_.add_registers();
    r->set_id(plan_.registers_size() - 1);
    r->set_name(name);
    r->set_bytes(bytes());
    r->set_slots(slots);
    r->set_tokens_per_step(tokens);
    r->set_initial_tokens(initial);
    r->set_arena_offset(Allocate(slots));
    r->set_stride((bytes() + 63) / 64 * 64);
    return r->id();
  }
  // Edges by lower stage: kind 0 activations up, kind 1 gradients down.
  int Remote(const std::string& name, int peer, int kind, proto::RegisterSpec::Side side) {
    const int id = Register(name, job_.message_slots, job_.micro_batches);
    proto::RegisterSpec* r = plan_.mutable_registers(id);
    r->set_side(side);
    r->set_peer(peer);
    r->set_edge(static_cast<uint64_t>(std::min(stage_, peer) * kEdgesPerStage + kind));
    return id;
  }
  int Inbound(const std::string& name, int peer, int kind) {
    return Remote(name, peer, kind, proto::RegisterSpec::INBOUND);
  }
  int Outbound(const std::string& name, int peer, int kind) {
    return Remote(name, peer, kind, proto::RegisterSpec::OUTBOUND);
  }

  proto::ActorSpec* Actor(const std::string& name, int acts, proto::ActorSpec::Phase phase,
                          int program) {
    proto::ActorSpec* actor = plan_.add_actor();
    actor->set_id(plan_.actor_size() - 1);
    actor->set_name(name);
    actor->set_function(name);
    actor->mutable_rate()->set_acts_per_step(acts);
    actor->set_phase(phase);
    if (job_.num_queues > 1) actor->set_queue(actor->id() % job_.num_queues);
    actor->set_program(program);
    actor->set_instance(static_cast<uint64_t>(stage_ * 100 + actor->id()));
    return actor;
  }
  void Source(int out) {
    proto::ActorSpec* source = Actor("source", job_.micro_batches, proto::ActorSpec::DATA, -1);
    source->set_kind(proto::ActorSpec::SOURCE);
    source->set_feed("data");
    SetSlice(source->mutable_feed_slice());
    Outputs(source, {{out, 1}});
  }
  void Send(const std::string& name, int from, int to) {
    proto::ActorSpec* send = Actor(name, job_.micro_batches, proto::ActorSpec::BOXING, -1);
    send->set_kind(proto::ActorSpec::SEND);
    send->set_priority(30);
    Inputs(send, {{from, 1}});
    Outputs(send, {{to, 1}});
  }
  using Ports = std::vector<std::pair<int, int>>;  // register, period
  static void Inputs(proto::ActorSpec* actor, const Ports& ports) {
    for (auto [id, period] : ports) {
      proto::InputPort* port = actor->add_input();
      port->set_register_id(id);
      port->mutable_span()->set_period(period);
    }
  }
  static void Outputs(proto::ActorSpec* actor, const Ports& ports) {
    for (auto [id, period] : ports) {
      proto::OutputPort* port = actor->add_output();
      port->set_register_id(id);
      port->mutable_span()->set_period(period);
    }
  }
  void SetSlice(proto::TensorSliceProto* slice) const {
    slice->set_dtype("i32");
    slice->add_shape(job_.words);
  }
  void SetOperand(proto::Operand* operand, proto::Operand::Place place, int index) const {
    operand->set_place(place);
    operand->set_index(index);
    SetSlice(operand->mutable_slice());
  }
  void Call(int program, const std::string& op, const std::vector<proto::Operand::Place>& inputs,
            proto::Operand::Place out, int index) {
    proto::KernelCall* call = plan_.mutable_program(program)->add_call();
    call->set_op(op);
    call->set_name(op);
    call->set_rng_key(static_cast<uint64_t>(plan_.mutable_program(program)->call_size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      SetOperand(call->add_input(), inputs[i], static_cast<int>(i));
    SetOperand(call->add_output(), out, index);
  }
  int Program(const std::string& op, int num_inputs) {
    plan_.add_program()->set_name(op);
    const int program = plan_.program_size() - 1;
    Call(program, op, std::vector<proto::Operand::Place>(num_inputs, proto::Operand::INPUT),
         proto::Operand::OUTPUT, 0);
    return program;
  }
  int UpdateProgram() {
    plan_.add_program()->set_name("update");
    const int program = plan_.program_size() - 1;
    Call(program, "test_fold", {proto::Operand::INPUT}, proto::Operand::STATE, 0);
    // The register of the weight carries a copy of the state for all readers.
    Call(program, "test_mix", {proto::Operand::STATE}, proto::Operand::OUTPUT, 0);
    return program;
  }

  const PipelineJob& job_;
  const int stage_;
  proto::RankPlan plan_;
  int64_t end_ = 0;
};

}  // namespace

std::vector<proto::RankPlan> MakePipelineJob(const PipelineJob& job) {
  std::vector<proto::RankPlan> plans;
  for (int stage = 0; stage < job.num_stages; ++stage)
    plans.push_back(StageBuilder(job, stage).Build());
  return plans;
}

}  // namespace weir::actors
