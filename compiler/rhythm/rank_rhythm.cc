#include "compiler/rhythm/rank_rhythm.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/floor_div.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// The acts of one actor, numbered over all iterations, as one port sees them.
struct PortTimes {
  const TimedGraph::Actor& actor;
  const Timing& start;
  const TimedGraph::Port& port;
  const StartTimes& times;

  int64_t StartOf(int64_t act) const {
    const int64_t iteration = FloorDiv(act, actor.acts);
    const int64_t k = act - iteration * actor.acts;
    return iteration * times.iteration_ns + start.start_ns + start.OffsetOf(k, actor.chunks);
  }
  int64_t SpanBegins(int64_t span) const { return StartOf(span * port.period); }
  int64_t SpanEnds(int64_t span) const {
    return StartOf((span + 1) * port.period - 1) + actor.time_ns;
  }
  int64_t spans() const {
    return std::max<int64_t>(1, actor.acts / port.period);
  }  // of an iteration
  // Returns the spans of a micro-batch. 0: spans do not repeat with the micro-batch.
  int64_t spans_of_micro_batch() const {
    return actor.chunks % port.period == 0 ? actor.chunks / port.period : 0;
  }
};

}  // namespace

int64_t SlotsNeeded(const TimedGraph& graph, const StartTimes& times,
                    const TimedGraph::Register& entry) {
  const TimedGraph::Actor& producer = graph.actors[entry.producer.actor];
  const PortTimes out{producer, times.actors[entry.producer.actor], entry.producer, times};
  int64_t slots = std::max({int64_t{1}, entry.initial_tokens, entry.producer.tokens});
  for (const TimedGraph::Port& port : entry.consumers) {
    const PortTimes in{graph.actors[port.actor], times.actors[port.actor], port, times};
    slots = std::max(slots, port.tokens);
    // The spans of the producer to check. If both ends repeat with the micro-batch, the spans of
    // one micro-batch inside an iteration are enough (the wait between iterations is not shorter);
    // else all spans of an iteration are needed.
    const int64_t own = out.spans_of_micro_batch(), theirs = in.spans_of_micro_batch();
    const bool even = own > 0 && theirs > 0 &&
                      own * entry.producer.tokens == theirs * port.tokens &&
                      out.start.micro_batch_stride_ns == in.start.micro_batch_stride_ns;
    const int64_t micro_batches = producer.acts / producer.chunks;
    // The last micro-batch of the second iteration has all earlier tokens before it.
    const int64_t end = 2 * out.spans();
    const int64_t begin = even && micro_batches > 1 ? end - own : end - out.spans();
    for (int64_t span = begin; span < end; ++span) {
      // The last slot of this span held the token of `slots` tokens ago. That token must be gone.
      const int64_t token = (span + 1) * entry.producer.tokens - 1 + entry.initial_tokens;
      while (in.SpanEnds(FloorDiv(token - slots, port.tokens)) + entry.latency_ns >
             out.SpanBegins(span))
        ++slots;
    }
  }
  return slots;
}

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHourNs = 3600 * kSecondNs;

class RankRhythm {
 public:
  RankRhythm(const JobRhythm& rhythm, int64_t steps_per_iteration, const RankGraph& graph,
             const IdVector<RegisterId, std::vector<Station>>& readers, proto::RankPlan* plan)
      : rhythm_(rhythm),
        steps_per_iteration_(steps_per_iteration),
        graph_(graph),
        readers_(readers),
        plan_(*plan) {
    times_.iteration_ns = rhythm.iteration_ns;
    times_.micro_batch_ns = rhythm.micro_batch_ns;
  }

  absl::Status Apply() {
    // For an iteration of one step the reader of the plan reports this error, if it reads the plan
    // at all.
    if (steps_per_iteration_ > 1 &&
        rhythm_.iteration_ns > plan_limits::kTimeMax / steps_per_iteration_) {
      return Rejected({"W0549", "training.update_every",
                       absl::StrCat("steps from one update to the next that take less than ",
                                    plan_limits::kTimeMax / kHourNs, " hours"),
                       absl::StrCat(steps_per_iteration_, " steps of ",
                                    rhythm_.iteration_ns / kSecondNs, " s each, by the cost model"),
                       "a smaller update_every, smaller batches or more devices"});
    }
    for (const RankActor& actor : graph_.actors)
      WEIR_RETURN_IF_ERROR(AddActor(actor, actor.station, actor.name).status());
    timed_.registers.resize(plan_.registers_size());
    AddPorts();
    for (int r = 0; r < plan_.registers_size(); ++r) {
      proto::RegisterSpec* spec = plan_.mutable_registers(r);
      const RegisterId reg(r);
      TimedGraph::Register& entry = timed_.registers[reg];
      entry.name = spec->name();
      entry.initial_tokens = spec->initial_tokens();
      entry.bytes = spec->bytes();
      if (spec->side() != proto::RegisterSpec::LOCAL) WEIR_RETURN_IF_ERROR(AddFarEnd(spec, &entry));
      if (spec->slots() == 0) spec->set_slots(static_cast<int>(SolvedSlots(reg, *spec, entry)));
      entry.slots = spec->slots();
    }
    // A weight that this rank only keeps or only reads has no second end to check.
    const auto end = std::remove_if(
        timed_.registers.begin(), timed_.registers.end(), [](const TimedGraph::Register& entry) {
          return !entry.producer.actor.has_value() || entry.consumers.empty();
        });
    timed_.registers.resize(end - timed_.registers.begin());
    absl::Status held = CheckStartTimes(timed_, times_);
    if (!held.ok()) {
      return absl::InternalError(absl::StrCat("the times solved for the job do not hold on rank ",
                                              graph_.rank, ": ", held.message()));
    }
    Write();
    return absl::OkStatus();
  }

 private:
  int64_t SolvedSlots(RegisterId reg, const proto::RegisterSpec& spec,
                      const TimedGraph::Register& entry) const {
    if (!entry.producer.actor.has_value()) return 1;
    const bool local = spec.side() == proto::RegisterSpec::LOCAL;
    RegisterFamily family{stations_[entry.producer.actor], readers_[reg],
                          local ? spec.tokens_per_step() : 0, spec.initial_tokens()};
    if (!local) family.consumers = {stations_[entry.consumers.at(0).actor]};
    const auto solved = rhythm_.slots.find(family);
    const int64_t needed = SlotsNeeded(timed_, times_, entry);
    return solved == rhythm_.slots.end() ? needed : std::max(needed, solved->second);
  }

  absl::StatusOr<ActorId> AddActor(const RankActor& like, const Station& station,
                                   const std::string& name) {
    const StationTime* time = rhythm_.Find(station);
    if (time == nullptr) {
      return absl::InternalError(absl::StrCat("rank ", graph_.rank, ": no time was solved for ",
                                              name, ", station ", station.index, " of item ",
                                              station.item));
    }
    TimedGraph::Actor actor;
    actor.name = name;
    actor.acts = like.acts_per_step;
    actor.chunks = like.chunks;
    actor.time_ns = time->time_ns;
    const ActorId id = timed_.actors.next_id();
    timed_.actors.push_back(std::move(actor));
    times_.actors.push_back(*time);
    stations_.push_back(station);
    return id;
  }

  // The times are those of a step with an update. In such a step every register has the tokens of
  // an update.
  void AddPorts() {
    for (int a = 0; a < plan_.actor_size(); ++a) {
      const auto port_of = [&](int reg) {
        return TimedGraph::Port{
            ActorId(a),
            plan_.actor(a).rate().acts_per_step() / plan_.registers(reg).tokens_per_step(), 1};
      };
      for (const proto::InputPort& port : plan_.actor(a).input())
        timed_.registers[RegisterId(port.register_id())].consumers.push_back(
            port_of(port.register_id()));
      for (const proto::OutputPort& port : plan_.actor(a).output())
        timed_.registers[RegisterId(port.register_id())].producer = port_of(port.register_id());
    }
  }

  absl::Status AddFarEnd(proto::RegisterSpec* spec, TimedGraph::Register* entry) {
    const bool inbound = spec->side() == proto::RegisterSpec::INBOUND;
    const TimedGraph::Port near = inbound ? entry->consumers.at(0) : entry->producer;
    const RankActor& actor = graph_.actors[near.actor];
    const Station& station = graph_.PeerOf(actor);
    WEIR_ASSIGN_OR_RETURN(const ActorId far, AddActor(actor, station, actor.far_name));
    const StationTime* sends = rhythm_.Find(inbound ? station : actor.station);
    entry->latency_ns = sends->latency_ns;
    TimedGraph::Port port{far, 1, 1};
    if (inbound) {
      entry->producer = port;
    } else {
      entry->consumers.push_back(port);
    }
    spec->set_latency_ns(entry->latency_ns);
    proto::FarActor* out = spec->add_far();
    out->set_name(actor.far_name);
    *out->mutable_rate() = ToProto(Rate(actor));
    *out->mutable_timing() = ToProto(times_.actors[far]);
    return absl::OkStatus();
  }

  void Write() {
    for (int a = 0; a < plan_.actor_size(); ++a)
      *plan_.mutable_actor(a)->mutable_timing() = ToProto(times_.actors[ActorId(a)]);
    proto::PlanCertificate* certificate = plan_.mutable_certificate();
    // Steps follow each other as if every step had an update. Then all waits are kept, including
    // waits over several steps.
    certificate->set_steps_per_iteration(steps_per_iteration_);
    certificate->set_iteration_ns(steps_per_iteration_ * rhythm_.iteration_ns);
    if (steps_per_iteration_ > 1) certificate->set_step_ns(rhythm_.iteration_ns);
    certificate->set_micro_batch_ns(rhythm_.micro_batch_ns);
  }

  const JobRhythm& rhythm_;
  const int64_t steps_per_iteration_;
  const RankGraph& graph_;
  const IdVector<RegisterId, std::vector<Station>>& readers_;
  proto::RankPlan& plan_;
  TimedGraph timed_;
  StartTimes times_;
  IdVector<ActorId, Station> stations_;  // of both
};

}  // namespace

absl::Status ApplyRhythm(const JobRhythm& rhythm, int64_t steps_per_iteration,
                         const RankGraph& graph,
                         const IdVector<RegisterId, std::vector<Station>>& readers,
                         proto::RankPlan* plan) {
  return RankRhythm(rhythm, steps_per_iteration, graph, readers, plan).Apply();
}

}  // namespace weir::compiler
