#include "actors/plan/derive_certificate.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/plan/plan.h"
#include "actors/plan/register_count.h"
#include "actors/plan/verify_plans.h"
#include "actors/protocol/actor_machine.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

struct ActorKey {
  RankId rank;
  ActorId actor;
  bool operator==(const ActorKey& o) const { return rank == o.rank && actor == o.actor; }
};

// A RegisterKey names a register of the job.
using RegisterKey = std::pair<RankId, RegisterId>;

// A Play plays one iteration of a job on machines without devices or messages.
class Play {
 public:
  explicit Play(const std::vector<Plan>& plans) : plans_(plans) {
    for (const Plan& plan : plans_) {
      for (const PlanRegister& r : plan.registers) {
        if (r.side == RegisterSide::kOutbound) out_[r.edge] = {plan.rank, r.id};
        if (r.side == RegisterSide::kInbound) in_[r.edge] = {plan.rank, r.id};
      }
    }
    for (const Plan& plan : plans_) MakeRank(plan);
  }

  absl::Status Run() {
    for (const Plan& plan : plans_) {
      for (const PlanActor& actor : plan.actors) TryAct({plan.rank, actor.id});
    }
    while (!ready_.empty()) {
      const ActorKey key = ready_.back();
      ready_.pop_back();
      Act(key);
    }
    for (const Plan& plan : plans_) {
      for (const PlanActor& actor : plan.actors) {
        if (!at(plan.rank, actor.id).machine.done()) return Standstill({plan.rank, actor.id});
      }
    }
    return absl::OkStatus();
  }

  const std::vector<int64_t>& starts(RankId rank, ActorId actor) const {
    return ranks_[rank].actors[actor].starts;
  }
  int64_t end_ns() const { return end_ns_; }
  const Plan& plan(RankId rank) const { return plans_[rank.value()]; }
  // Returns the inbound half of an outbound register, or the outbound half of an inbound register.
  RegisterKey OtherEnd(const PlanRegister& r) const {
    return (r.side == RegisterSide::kOutbound ? in_ : out_).at(r.edge);
  }

 private:
  struct ActorPlay {
    ActorMachine machine;
    std::vector<int64_t> starts;
    int64_t free_at = 0;
    StreamId stream;
    bool queued = false;
  };
  struct RegisterPlay {              // on the rank that has the slots
    std::vector<int64_t> published;  // by token
    std::vector<int64_t> released;   // by token: the last consumer so far
    std::vector<int> readers_left;
  };
  struct StreamPlay {
    std::vector<ActorId> order;  // actors by act, of one step
    int64_t next = 0;
    int64_t free_at = 0;
    ActorId actor() const { return order[next % static_cast<int64_t>(order.size())]; }
  };
  struct RankPlay {
    IdVector<ActorId, ActorPlay> actors;
    IdVector<RegisterId, RegisterPlay> registers;
    IdVector<StreamId, StreamPlay> streams;
  };

  static PortSpec Spec(const PlanPort& port, const PlanRegister& r, int64_t available,
                       int64_t next_token) {
    PortSpec spec;
    spec.register_id = port.register_id;
    spec.period = port.period;
    spec.slots = r.slots;
    spec.tokens = port.tokens;
    spec.position = port.phase;
    spec.available = static_cast<int32_t>(available);
    spec.next_token = next_token;
    return spec;
  }

  ActorPlay& at(RankId rank, ActorId actor) { return ranks_[rank].actors[actor]; }
  // Returns the rank and register that hold the slots: those of the consumers.
  RegisterKey Home(RankId rank, RegisterId register_id) const {
    const PlanRegister& r = plan(rank).registers[register_id];
    return r.side == RegisterSide::kOutbound ? OtherEnd(r) : RegisterKey(rank, register_id);
  }
  // Returns the actor and port that produce into the register whose home is `home`.
  std::pair<RankId, PortRef> Producer(RegisterKey home) const {
    const PlanRegister& r = plan(home.first).registers[home.second];
    if (r.side != RegisterSide::kInbound) return {home.first, r.producer};
    const auto [rank, id] = OtherEnd(r);
    return {rank, plan(rank).registers[id].producer};
  }

  void MakeRank(const Plan& plan);
  void TryAct(ActorKey key);
  void Act(ActorKey key);
  int64_t EarliestStart(ActorKey key);
  void Publish(RegisterKey home, int64_t token, int64_t at);
  void Release(RegisterKey home, int64_t token, int64_t at);
  absl::Status Standstill(ActorKey key);
  std::pair<ActorKey, std::string> WaitsFor(ActorKey key);

  const std::vector<Plan>& plans_;
  std::map<EdgeId, RegisterKey> out_, in_;
  IdVector<RankId, RankPlay> ranks_;
  std::vector<ActorKey> ready_;
  int64_t end_ns_ = 0;
};

void Play::MakeRank(const Plan& plan) {
  RankPlay& rank = ranks_.emplace_back();
  for (const PlanRegister& r : plan.registers) {
    RegisterPlay& play = rank.registers.emplace_back();
    play.published.assign(r.initial_tokens, 0);
    play.released.assign(r.initial_tokens, 0);
    play.readers_left.assign(r.initial_tokens, static_cast<int>(r.consumers.size()));
  }
  for (const PlanActor& actor : plan.actors) {
    std::vector<PortSpec> inputs, outputs;
    for (const PlanPort& port : actor.inputs) {
      const PlanRegister& r = plan.registers[port.register_id];
      inputs.push_back(Spec(port, r, r.initial_tokens, 0));
    }
    for (const PlanPort& port : actor.outputs) {
      const PlanRegister& r = plan.registers[port.register_id];
      outputs.push_back(Spec(port, r, r.slots - r.initial_tokens, r.initial_tokens));
    }
    rank.actors.push_back({ActorMachine(actor.id, inputs, outputs), {}});
    rank.actors.back().machine.RaiseLimit(actor.ActsIn(plan.rhythm.steps_per_iteration));
  }
  for (const PlanStream& stream : plan.streams) {
    const StreamId id = rank.streams.next_id();
    StreamPlay& play = rank.streams.emplace_back();
    int32_t lead = 0;
    for (const PlanStream::Entry& entry : stream.entries) {
      lead = std::max(lead, entry.ahead);
      rank.actors[entry.actor].stream = id;
    }
    const int32_t acts = plan.actors[stream.entries[0].actor].acts_per_step;
    for (int32_t round = -lead; round < acts; ++round) {
      for (const PlanStream::Entry& entry : stream.entries) {
        if (round + entry.ahead >= 0 && round + entry.ahead < acts)
          play.order.push_back(entry.actor);
      }
    }
  }
}

void Play::TryAct(ActorKey key) {
  ActorPlay& actor = at(key.rank, key.actor);
  if (actor.queued || !actor.machine.ready()) return;
  if (actor.stream.has_value() && ranks_[key.rank].streams[actor.stream].actor() != key.actor)
    return;
  actor.queued = true;
  ready_.push_back(key);
}

// Returns the earliest start of the act that the machine has just started; the act's spans already
// hold their tokens and slots.
int64_t Play::EarliestStart(ActorKey key) {
  const ActorPlay& actor = at(key.rank, key.actor);
  int64_t start = actor.free_at;
  if (actor.stream.has_value())
    start = std::max(start, ranks_[key.rank].streams[actor.stream].free_at);
  for (int i = 0; i < actor.machine.num_inputs() + actor.machine.num_outputs(); ++i) {
    const bool input = i < actor.machine.num_inputs();
    const ActorMachine::Port& port =
        input ? actor.machine.input(i) : actor.machine.output(i - actor.machine.num_inputs());
    const int64_t latency = plan(key.rank).registers[port.register_id].latency_ns;
    const auto home = Home(key.rank, port.register_id);
    const RegisterPlay& r = ranks_[home.first].registers[home.second];
    for (int64_t token = port.next_token - port.tokens; token < port.next_token; ++token) {
      if (input) {
        start = std::max(
            start,
            r.published[token] +
                (token < plan(key.rank).registers[port.register_id].initial_tokens ? 0 : latency));
      } else if (token >= port.slots) {
        start = std::max(start, r.released[token - port.slots] + latency);
      }
    }
  }
  return start;
}

void Play::Act(ActorKey key) {
  ActorPlay& actor = at(key.rank, key.actor);
  actor.queued = false;
  actor.machine.Start();
  const int64_t start = EarliestStart(key);
  const int64_t end = start + plan(key.rank).actors[key.actor].timing.time_ns;
  actor.starts.push_back(start);
  actor.free_at = end;
  end_ns_ = std::max(end_ns_, end);
  if (actor.stream.has_value()) {
    StreamPlay& stream = ranks_[key.rank].streams[actor.stream];
    stream.free_at = end;
    ++stream.next;
    TryAct({key.rank, stream.actor()});
  }
  size_t tokens = 1;
  for (int i = 0; i < actor.machine.num_inputs(); ++i) tokens += actor.machine.input(i).tokens;
  for (int i = 0; i < actor.machine.num_outputs(); ++i) tokens += actor.machine.output(i).tokens;
  Effects done(tokens);
  actor.machine.OnActDone(&done);
  for (const Effect& effect : done) {
    const auto home = Home(key.rank, effect.register_id);
    const int64_t latency = plan(key.rank).registers[effect.register_id].latency_ns;
    end_ns_ = std::max(end_ns_, end + latency);
    if (effect.kind == Effect::Kind::kPublishToken) {
      Publish(home, effect.number, end);
    } else {
      Release(home, effect.number, end);
    }
  }
  TryAct(key);
}

void Play::Publish(RegisterKey home, int64_t token, int64_t at_ns) {
  RegisterPlay& r = ranks_[home.first].registers[home.second];
  const PlanRegister& spec = plan(home.first).registers[home.second];
  r.published.push_back(at_ns);
  r.released.push_back(at_ns);
  r.readers_left.push_back(static_cast<int>(spec.consumers.size()));
  for (const PortRef& consumer : spec.consumers) {
    at(home.first, consumer.actor).machine.OnToken(consumer.port);
    TryAct({home.first, consumer.actor});
  }
  if (spec.consumers.empty()) {
    r.readers_left[token] = 1;
    Release(home, token, at_ns);
  }
}

void Play::Release(RegisterKey home, int64_t token, int64_t at_ns) {
  RegisterPlay& r = ranks_[home.first].registers[home.second];
  r.released[token] = std::max(r.released[token], at_ns);
  if (--r.readers_left[token] > 0) return;
  const auto [rank, producer] = Producer(home);
  at(rank, producer.actor).machine.OnCredit(producer.port);
  TryAct({rank, producer.actor});
}

// Returns the actor for which an unfinished actor waits, and the reason.
std::pair<ActorKey, std::string> Play::WaitsFor(ActorKey key) {
  ActorPlay& actor = at(key.rank, key.actor);
  const Plan& own = plan(key.rank);
  if (actor.machine.ready()) {  // and it is not its turn
    const StreamPlay& stream = ranks_[key.rank].streams[actor.stream];
    return {{key.rank, stream.actor()},
            absl::StrCat("its turn in stream order '", own.streams[actor.stream].name, "', after")};
  }
  const RegisterId reg = actor.machine.waits_for();
  const PlanRegister& spec = own.registers[reg];
  const auto home = Home(key.rank, reg);
  if (actor.machine.state() == ActorState::kWaitsForInput) {
    const auto [rank, producer] = Producer(home);
    return {{rank, producer.actor}, absl::StrCat("a token of '", spec.name, "' from")};
  }
  const std::string what =
      absl::StrCat("one of the ", spec.slots, spec.slots == 1 ? " slot" : " slots", " of '",
                   spec.name, "', held by");
  const std::vector<int>& left = ranks_[home.first].registers[home.second].readers_left;
  const std::vector<PortRef>& consumers = plan(home.first).registers[home.second].consumers;
  for (size_t token = 0; token < left.size(); ++token) {
    if (left[token] == 0) continue;
    for (const PortRef& consumer : consumers) {
      const ActorMachine::Port& port = at(home.first, consumer.actor).machine.input(consumer.port);
      if (port.next_token - (port.held_slot >= 0 ? port.tokens : 0) <=
          static_cast<int64_t>(token)) {
        return {{home.first, consumer.actor}, what};
      }
    }
  }
  return {key, what};
}

absl::Status Play::Standstill(ActorKey key) {
  std::vector<ActorKey> seen;
  while (std::find(seen.begin(), seen.end(), key) == seen.end()) {
    seen.push_back(key);
    key = WaitsFor(key).first;
  }
  std::string text;
  ActorKey at_actor = key;
  do {
    const auto [next, what] = WaitsFor(at_actor);
    const ActorPlay& actor = at(at_actor.rank, at_actor.actor);
    absl::StrAppend(&text, "\n  '", plan(at_actor.rank).actors[at_actor.actor].name, "' on rank ",
                    at_actor.rank, " (act ", actor.machine.acts_done(), ") waits for ", what, " '",
                    plan(next.rank).actors[next.actor].name, "' on rank ", next.rank);
    at_actor = next;
  } while (!(at_actor == key));
  return Rejected({"W0542", "the plans of the job",
                   "an order in which all acts of an iteration can be done",
                   absl::StrCat("actors that wait for each other:", text),
                   "more slots for a register among these, or another order"});
}

template <typename Spec>  // ActorSpec, FarActor
void WriteTiming(const std::vector<int64_t>& starts, int64_t time_ns, Spec* out) {
  *out->mutable_timing() = ToProto(Timing{starts.empty() ? 0 : starts[0], 0, 0, time_ns});
  out->mutable_act_start_ns()->Assign(starts.begin(), starts.end());
}

void WriteFar(const Play& play, RankId rank, const PlanActor& actor, const PlanPort& port,
              proto::FarActor* out) {
  out->set_name(actor.name);
  *out->mutable_rate() = ToProto(static_cast<const Rate&>(actor));
  *out->mutable_span() = ToProto(static_cast<const Span&>(port));
  WriteTiming(play.starts(rank, actor.id), actor.timing.time_ns, out);
}

}  // namespace

absl::Status DeriveCertificate(std::vector<proto::RankPlan>* plans) {
  std::vector<Plan> checked;
  for (proto::RankPlan& proto : *plans) {
    for (proto::RegisterSpec& r : *proto.mutable_registers()) r.clear_far();
    for (proto::ActorSpec& actor : *proto.mutable_actor()) {
      const int64_t time_ns = actor.timing().time_ns();
      actor.clear_timing();
      actor.clear_act_start_ns();
      actor.mutable_timing()->set_time_ns(time_ns);
    }
    WEIR_ASSIGN_OR_RETURN(Plan plan, PlanFromProto(proto));
    checked.push_back(std::move(plan));
  }
  WEIR_RETURN_IF_ERROR(VerifyPlans(checked));
  Play play(checked);
  WEIR_RETURN_IF_ERROR(play.Run());
  for (const Plan& plan : checked) {
    proto::RankPlan& proto = (*plans)[plan.rank.value()];
    proto::PlanCertificate* certificate = proto.mutable_certificate();
    const int64_t steps = plan.rhythm.steps_per_iteration;
    certificate->Clear();
    certificate->set_steps_per_iteration(steps);
    certificate->set_iteration_ns(std::max<int64_t>(play.end_ns(), 1));
    certificate->set_step_ns(play.end_ns() / steps);
    certificate->set_micro_batch_ns(play.end_ns() / (steps * plan.micro_batches));
    for (const PlanActor& actor : plan.actors) {
      WriteTiming(play.starts(plan.rank, actor.id), actor.timing.time_ns,
                  proto.mutable_actor(actor.id.value()));
    }
    for (const PlanRegister& r : plan.registers) {
      if (r.side == RegisterSide::kLocal) continue;
      const auto [other_rank, other_id] = play.OtherEnd(r);
      const PlanRegister& other = play.plan(other_rank).registers[other_id];
      if (r.side == RegisterSide::kInbound) {
        const PlanActor& actor = play.plan(other_rank).actors[other.producer.actor];
        WriteFar(play, other_rank, actor, actor.outputs[other.producer.port],
                 proto.mutable_registers(r.id.value())->add_far());
      }
      for (const PortRef& consumer : other.consumers) {
        const PlanActor& actor = play.plan(other_rank).actors[consumer.actor];
        WriteFar(play, other_rank, actor, actor.inputs[consumer.port],
                 proto.mutable_registers(r.id.value())->add_far());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::actors
