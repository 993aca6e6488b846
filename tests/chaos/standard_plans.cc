#include "tests/chaos/standard_plans.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_plans.h"
#include "runtime/base/random.h"

namespace weir::chaos {
namespace {

constexpr int kWords = 8;
constexpr int64_t kBytes = 4 * kWords;
constexpr int64_t kStride = 64;

// One rank of a row: takes a token from the rank before (or a feed), mixes it in some actors, gives
// it to the next rank (or folds it into a state).
class RowRank {
 public:
  RowRank(int rank, int num_ranks, int micro_batches)
      : rank_(rank), num_ranks_(num_ranks), m_(micro_batches) {
    plan_.set_rank(rank);
    plan_.set_num_ranks(num_ranks);
    plan_.set_plan_id("grid");
    plan_.set_seed(5);
    plan_.set_micro_batches(micro_batches);
    plan_.set_device("stage " + std::to_string(rank));
    plan_.set_stage(rank);
    plan_.set_num_stages(num_ranks);
  }

  // `skip`: the last mixing actor also reads the first token, which must wait for it. `delay`:
  // tokens that are there at first on the edges between ranks.
  proto::RankPlan Build(int actors, bool skip, int delay) {
    const bool first = rank_ == 0, last = rank_ == num_ranks_ - 1;
    const int begin = first ? Register("data", skip ? actors + 1 : 2)
                            : Remote("in", rank_ - 1, proto::RegisterSpec::INBOUND, delay);
    if (first) Source(begin);
    const int mix = Program("test_mix", 1), mix2 = Program("test_mix", 2);
    int token = begin;
    for (int i = 0; i < actors; ++i) {
      const bool joins = skip && i == actors - 1 && i > 0;
      const int next = Register("mixed " + std::to_string(i), 1 + i % 2);
      proto::ActorSpec* actor = Actor("mix " + std::to_string(i), proto::ActorSpec::COMPUTE,
                                      joins ? mix2 : mix, proto::ActorSpec::FORWARD);
      actor->set_priority(i % 3);
      Input(actor, token);
      if (joins) Input(actor, begin);
      Output(actor, next);
      token = next;
    }
    if (last) {
      Fold(token);
    } else {
      proto::ActorSpec* send = Actor("send", proto::ActorSpec::SEND, -1, proto::ActorSpec::BOXING);
      Input(send, token);
      Output(send, Remote("out", rank_ + 1, proto::RegisterSpec::OUTBOUND, delay));
    }
    plan_.set_arena_bytes(end_);
    return std::move(plan_);
  }

 private:
  int Register(const std::string& name, int slots) {
    proto::RegisterSpec* r = plan_.add_registers();
    r->set_id(plan_.registers_size() - 1);
    r->set_name(name);
    r->set_bytes(kBytes);
    r->set_slots(slots);
    r->set_tokens_per_step(m_);
    r->set_arena_offset(end_);
    r->set_stride(kStride);
    end_ += kStride * slots;
    return r->id();
  }
  int Remote(const std::string& name, int peer, proto::RegisterSpec::Side side, int delay) {
    const int id = Register(name, 2 + delay);
    proto::RegisterSpec* r = plan_.mutable_registers(id);
    r->set_side(side);
    r->set_peer(peer);
    r->set_edge(static_cast<uint64_t>(100 + std::min(rank_, peer)));
    r->set_initial_tokens(delay);
    return id;
  }
  proto::ActorSpec* Actor(const std::string& name, proto::ActorSpec::Kind kind, int program,
                          proto::ActorSpec::Phase phase) {
    proto::ActorSpec* actor = plan_.add_actor();
    actor->set_id(plan_.actor_size() - 1);
    actor->set_name(name);
    actor->set_function(name);
    actor->set_kind(kind);
    actor->set_program(program);
    actor->mutable_rate()->set_acts_per_step(m_);
    actor->set_instance(static_cast<uint64_t>(rank_ * 100 + actor->id()));
    actor->set_phase(phase);
    return actor;
  }
  static void Input(proto::ActorSpec* actor, int id) {
    proto::InputPort* port = actor->add_input();
    port->set_register_id(id);
  }
  static void Output(proto::ActorSpec* actor, int id) {
    proto::OutputPort* port = actor->add_output();
    port->set_register_id(id);
  }
  static void SetSlice(proto::TensorSliceProto* slice) {
    slice->set_dtype("i32");
    slice->add_shape(kWords);
  }
  void Source(int out) {
    proto::ActorSpec* source =
        Actor("source", proto::ActorSpec::SOURCE, -1, proto::ActorSpec::DATA);
    source->set_feed("data");
    SetSlice(source->mutable_feed_slice());
    Output(source, out);
  }
  void Fold(int in) {
    proto::StateSpec* state = plan_.add_state();
    state->set_name("sum");
    SetSlice(state->mutable_slice());
    state->set_arena_offset(end_);
    state->set_owner(true);
    end_ += kStride;
    const int program = Program("test_fold", 1);
    plan_.mutable_program(program)->mutable_call(0)->mutable_output(0)->set_place(
        proto::Operand::STATE);
    proto::ActorSpec* fold =
        Actor("fold", proto::ActorSpec::COMPUTE, program, proto::ActorSpec::UPDATE);
    fold->add_state(0);
    Input(fold, in);
  }
  int Program(const std::string& op, int num_inputs) {
    ::weir::proto::Program* program = plan_.add_program();
    program->set_name(op);
    proto::KernelCall* call = program->add_call();
    call->set_op(op);
    call->set_name(op);
    call->set_rng_key(1);
    for (int i = 0; i < num_inputs; ++i) {
      proto::Operand* input = call->add_input();
      input->set_place(proto::Operand::INPUT);
      input->set_index(i);
      SetSlice(input->mutable_slice());
    }
    proto::Operand* output = call->add_output();
    output->set_place(proto::Operand::OUTPUT);
    SetSlice(output->mutable_slice());
    return plan_.program_size() - 1;
  }

  const int rank_, num_ranks_, m_;
  proto::RankPlan plan_;
  int64_t end_ = 0;
};

std::vector<proto::RankPlan> MakeRow(int actors_of_rank, int ranks, int micro_batches, bool skip,
                                     int delay) {
  std::vector<proto::RankPlan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    plans.push_back(
        RowRank(rank, ranks, micro_batches).Build(actors_of_rank, skip && rank == 0, delay));
  }
  return plans;
}

StandardPlan Pipeline(const std::string& name, int stages, int micro_batches) {
  actors::PipelineJob job;
  job.num_stages = stages;
  job.micro_batches = micro_batches;
  job.words = kWords;
  return {name, actors::MakePipelineJob(job), 2};
}

std::vector<StandardPlan> MakeStandardPlans() {
  std::vector<StandardPlan> plans;
  for (const char* name : {"chain", "diamond", "repeat", "accumulate", "chunked", "ring",
                           "train_loop", "packed", "stream"}) {
    plans.push_back({name, actors::LoadTestJob(name), 2});
  }
  plans.push_back({"every_other_step", actors::LoadTestJob("every_other_step"), 4});
  plans.push_back(Pipeline("pipeline2", 2, 4));
  plans.push_back(Pipeline("pipeline4", 4, 4));  // as two processes of two ranks each would run it
  plans.push_back({"delay", MakeRow(1, 3, 4, false, 1), 2});
  plans.push_back({"skip", MakeRow(3, 2, 4, true, 0), 2});
  plans.push_back({"grid8x8", MakeGrid(8, 2, 8), 1});
  constexpr struct {
    int queues, depth;
  } kDevices[] = {{2, 64}, {4, 64}, {3, 2}, {1, 64}, {2, 2}, {4, 1}};
  const size_t num_plans = plans.size();
  for (size_t i = 0; i < num_plans; ++i) {
    const auto& [queues, depth] = kDevices[i % std::size(kDevices)];
    plans.push_back(OnQueues(plans[i], queues, depth, i));
  }
  return plans;
}

// Room for the scratch of each queue: all else moves up.
void AddScratch(proto::RankPlan* plan) {
  int64_t scratch = 0;
  for (const proto::Program& program : plan->program())
    scratch = std::max(scratch, program.scratch_bytes());
  scratch = (scratch + kStride - 1) / kStride * kStride * plan->num_queues();
  const int64_t more = scratch - std::min(scratch, plan->scratch_bytes());
  for (proto::RegisterSpec& r : *plan->mutable_registers())
    r.set_arena_offset(r.arena_offset() + more);
  for (proto::StateSpec& state : *plan->mutable_state())
    state.set_arena_offset(state.arena_offset() + more);
  plan->set_scratch_bytes(scratch);
  plan->set_arena_bytes(plan->arena_bytes() + more);
}

}  // namespace

std::vector<proto::RankPlan> MakeGrid(int actors, int ranks, int micro_batches) {
  // Each rank has a source, a sender or a folding actor beside the mixing ones.
  std::vector<proto::RankPlan> plans;
  int left = actors;
  for (int rank = 0; rank < ranks; ++rank) {
    const int here = left / (ranks - rank);
    left -= here;
    const int mixing = std::max(0, here - 1 - (rank == 0));
    plans.push_back(RowRank(rank, ranks, micro_batches).Build(mixing, false, 0));
  }
  return plans;
}

StandardPlan OnQueues(const StandardPlan& plan, int num_queues, int depth, uint64_t seed) {
  StandardPlan spread = plan;
  spread.name += "_" + std::to_string(num_queues) + "x" + std::to_string(depth);
  for (proto::RankPlan& rank : spread.ranks) {
    rank.set_num_queues(num_queues);
    rank.set_depth(depth);
    AddScratch(&rank);
    for (proto::ActorSpec& actor : *rank.mutable_actor()) {
      const uint64_t draw = MixKey(MixKey(seed, rank.rank()), static_cast<uint64_t>(actor.id()));
      actor.set_queue(static_cast<int>(draw % static_cast<uint64_t>(num_queues)));
    }
    std::map<int, int> queue_of_state;  // its actors must share one
    for (proto::ActorSpec& actor : *rank.mutable_actor()) {
      for (int state : actor.state())
        actor.set_queue(queue_of_state.emplace(state, actor.queue()).first->second);
    }
    for (const proto::StreamOrder& stream :
         rank.stream_order()) {  // stays on the queue of its first actor
      const int queue = rank.actor(stream.entry(0).actor()).queue();
      for (const proto::StreamOrder::Entry& entry : stream.entry())
        rank.mutable_actor(entry.actor())->set_queue(queue);
    }
  }
  return spread;
}

const std::vector<StandardPlan>& StandardPlans() {
  static const auto* plans = new std::vector<StandardPlan>(MakeStandardPlans());
  return *plans;
}

const StandardPlan* FindPlan(const std::string& name) {
  static const auto* large = new StandardPlan{"grid32x16", MakeGrid(32, 4, 16), 1};
  for (const StandardPlan& plan : StandardPlans()) {
    if (plan.name == name) return &plan;
  }
  return name == large->name ? large : nullptr;
}

}  // namespace weir::chaos
