#include "tools/trace/replay.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace weir::trace {
namespace {

int64_t MedianOf(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// MessageTimes estimates the times of messages from the acts around them.
class MessageTimes {
 public:
  MessageTimes(const RecordedRun& run, RecordedAct::Wait way) : run_(run), way_(way) {
    known_.resize(run.registers.size());
  }

  // Returns the tokens that were published, or given up, in the steps that are replayed: [first,
  // end).
  std::pair<int64_t, int64_t> Range(RecordedRegisterId index) const {
    const RecordedRegister& r = run_.registers[index];
    const bool token = way_ == RecordedAct::Wait::kInput;
    const RecordedPortRef& ref = token ? r.producer : r.consumers[0];
    const RecordedActor& actor = run_.actors[ref.actor];
    const RecordedPort& port = token ? actor.outputs[ref.port] : actor.inputs[ref.port];
    const auto before = [&](int64_t step) {
      return port.TokensGivenUp(actor.ActsBefore(step)) + (token ? r.initial_tokens : 0);
    };
    return {before(run_.first_step), before(run_.last_step + 1)};
  }

  struct Observation {
    bool exact = false;
    int64_t ns = 0;  // the time, or no less than it
  };
  // Returns nothing if the acts around the message are not kept.
  std::optional<Observation> Observe(RecordedRegisterId index, int64_t token) const {
    return way_ == RecordedAct::Wait::kInput ? ObserveToken(index, token)
                                             : ObserveCredit(index, token);
  }

  // Returns the medians, after all exact times have been added.
  void Add(RecordedRegisterId index, int64_t ns) {
    known_[index].push_back(ns);
    of_pair_[Pair(index)].push_back(ns);
    all_.push_back(ns);
  }
  int64_t Median(RecordedRegisterId index) {
    if (!known_[index].empty()) return MedianOf(known_[index]);
    auto pair = of_pair_.find(Pair(index));
    return MedianOf(pair != of_pair_.end() ? pair->second : all_);
  }

 private:
  std::pair<RecordedRankId, RecordedRankId> Pair(RecordedRegisterId index) const {
    const RecordedRegister& r = run_.registers[index];
    return {run_.actors[r.producer.actor].rank_index, run_.actors[r.consumers[0].actor].rank_index};
  }
  std::optional<Observation> ObserveToken(RecordedRegisterId index, int64_t token) const {
    const RecordedAct* from = run_.Publisher(index, token);
    if (from == nullptr) return std::nullopt;
    std::optional<Observation> seen;
    for (const RecordedPortRef& consumer : run_.registers[index].consumers) {
      const RecordedPort& port = run_.actors[consumer.actor].inputs[consumer.port];
      const RecordedAct* to = run_.Act(consumer.actor, port.FirstAct(token / port.tokens));
      if (to == nullptr) continue;
      const bool exact = to->wait == RecordedAct::Wait::kInput && to->waited_register == index &&
                         RecordedRun::TokenTaken(port, to->number) == token;
      const int64_t ns = std::max<int64_t>(0, (exact ? to->ready : to->start) - from->end);
      if (!seen.has_value() || ns < seen->ns) seen = Observation{exact, ns};
    }
    return seen;
  }
  std::optional<Observation> ObserveCredit(RecordedRegisterId index, int64_t token) const {
    const RecordedRegister& r = run_.registers[index];
    const RecordedAct* from = run_.LastReader(index, token);
    const RecordedPort& port = run_.actors[r.producer.actor].outputs[r.producer.port];
    const int64_t span = (token + r.slots - r.initial_tokens) / port.tokens;
    const RecordedAct* to = run_.Act(r.producer.actor, port.FirstAct(span));
    if (from == nullptr || to == nullptr) return std::nullopt;
    const bool exact = to->wait == RecordedAct::Wait::kCredit && to->waited_register == index &&
                       run_.TokenInTheWay(port, to->number) == token;
    return Observation{exact, std::max<int64_t>(0, (exact ? to->ready : to->start) - from->end)};
  }

  const RecordedRun& run_;
  const RecordedAct::Wait way_;
  IdVector<RecordedRegisterId, std::vector<int64_t>> known_;  // exact
  std::map<std::pair<RecordedRankId, RecordedRankId>, std::vector<int64_t>> of_pair_;
  std::vector<int64_t> all_;
};

}  // namespace

Replayer::Replayer(const RecordedRun* run) : run_(run) {
  FindDurations();
  FindRests();
  FindMessages();
  FindPlannedCredits();
  Record();
  ChooseSample();
  as_it_was_ = Play({}, run->first_step);
  if (sample_first_ != run->first_step) sample_ = Play({}, sample_first_);
}

void Replayer::ChooseSample() {
  const int64_t num_steps = run_->last_step - run_->first_step + 1;
  int64_t acts = 0;
  for (const RecordedActor& actor : run_->actors) acts += static_cast<int64_t>(actor.acts.size());
  const int64_t fit = kSampleActsMax * num_steps / std::max<int64_t>(1, acts);
  sample_first_ = run_->last_step + 1 - std::min(num_steps, std::max(kSampleStepsMin, fit));
}

// An act's time is that of the device: the act began when the act before it had ended. The time
// between the two belongs to the act too, if the rank waited for nothing: the engine's time, or the
// time in which another thread had the core. A device that takes acts ahead has no such time, and
// tells when acts began.
void Replayer::FindDurations() {
  constexpr int64_t kUnknown = -1;
  for (const RecordedActor& actor : run_->actors)
    durations_.emplace_back(actor.acts.size(), kUnknown);
  for (const RecordedRank& rank : run_->ranks) {
    int64_t free_since = std::numeric_limits<int64_t>::min();
    auto run = rank.runs.begin();
    for (size_t i = 0; i < rank.acts.size(); ++i) {
      const RecordedAct& act = rank.acts[i];
      for (; run != rank.runs.end() && run->act <= static_cast<int32_t>(i); ++run)
        free_since = std::max(free_since, run->at);
      const bool waited = act.wait != RecordedAct::Wait::kNone || act.waited_for_group || i == 0 ||
                          rank.takes_ahead();
      const int64_t ns =
          std::max<int64_t>(0, act.end - (waited ? std::max(act.start, free_since) : free_since));
      if (!rank.takes_ahead()) free_since = std::max(free_since, act.end);
      if (act.step < run_->first_step || act.step > run_->last_step) continue;
      durations_[act.actor][act.number - run_->actors[act.actor].first_act] = ns;
    }
  }
  for (std::vector<int64_t>& durations : durations_) {
    std::vector<int64_t> known;
    for (int64_t ns : durations) {
      if (ns != kUnknown) known.push_back(ns);
    }
    const int64_t median = MedianOf(known);
    for (int64_t& ns : durations) {
      if (ns == kUnknown) ns = median;
    }
  }
}

void Replayer::FindRests() {
  for (int64_t step = run_->first_step + 1; step <= run_->last_step; ++step) {
    if (run_->TimeOf(step).place != StepTime::Place::kFirstOfRun) continue;
    Rest& rest = rests_.emplace_back();
    rest.step = step;
    const int64_t end = run_->TimeOf(step - 1).end, begin = run_->TimeOf(step).begin;
    for (const RecordedRank& rank : run_->ranks) {
      // Finds the first run that began no earlier; a rank whose rest was too short to be recorded
      // began with the others.
      auto at =
          std::find_if(rank.runs.begin(), rank.runs.end(),
                       [begin](const RecordedRank::RunBegin& run) { return run.at >= begin; });
      const bool known = at != rank.runs.end() && at->at <= run_->TimeOf(step).end;
      rest.begin_after.push_back((known ? at->at : begin) - end);
    }
  }
}

void Replayer::FindMessages() {
  for (auto [way, messages] :
       {std::pair(RecordedAct::Wait::kInput, &tokens_), {RecordedAct::Wait::kCredit, &credits_}}) {
    messages->resize(run_->registers.size());
    MessageTimes times(*run_, way);
    IdVector<RecordedRegisterId, std::vector<std::optional<MessageTimes::Observation>>> seen(
        run_->registers.size());
    for (const RecordedRegisterId i : run_->registers.ids()) {
      if (!run_->registers[i].crosses_ranks) continue;
      const auto [first, end] = times.Range(i);
      (*messages)[i].first_token = first;
      for (int64_t token = first; token < end; ++token) {
        seen[i].push_back(times.Observe(i, token));
        if (seen[i].back().has_value() && seen[i].back()->exact) times.Add(i, seen[i].back()->ns);
      }
    }
    for (const RecordedRegisterId i : run_->registers.ids()) {
      if (!run_->registers[i].crosses_ranks) continue;
      Messages& m = (*messages)[i];
      m.median_ns = times.Median(i);
      for (const auto& o : seen[i]) {
        m.ns.push_back(!o.has_value() ? m.median_ns
                       : o->exact     ? o->ns
                                      : std::min(o->ns, m.median_ns));
      }
    }
  }
}

void Replayer::FindPlannedCredits() {
  for (const RecordedRegister& r : run_->registers) {
    if (!r.crosses_ranks || r.planned_way_ns <= 0) continue;
    planned_credit_ns_ =
        planned_credit_ns_ == 0 ? r.planned_way_ns : std::min(planned_credit_ns_, r.planned_way_ns);
  }
}

std::vector<ReplayedAct> Replayer::PlayAsPlanned() const {
  constexpr int64_t kSteps = 3;  // the kept one has one before it and one after it
  const bool is_planned =
      std::any_of(run_->actors.begin(), run_->actors.end(),
                  [](const RecordedActor& actor) { return actor.planned_ns > 0; });
  if (!is_planned) return {};
  ReplayChanges changes;
  changes.times = ReplayChanges::Times::kPlanned;
  changes.kept_step = std::max(run_->first_step, run_->last_step - 1);
  ReplayResult result = Play(changes, std::max(run_->first_step, run_->last_step + 1 - kSteps));
  return result.finished ? std::move(result.acts) : std::vector<ReplayedAct>();
}

void Replayer::Record() {
  recorded_.finished = true;
  for (const StepTime& step : run_->times.steps) recorded_.step_ns_of.push_back(step.ns());
  is_outlier_.assign(run_->times.steps.size(), 0);
  for (const size_t place : run_->times.Outliers()) is_outlier_[place] = 1;
  recorded_.step_ns = MeanStepNs(recorded_.step_ns_of, run_->first_step);
}

double Replayer::MeanStepNs(const std::vector<int64_t>& step_ns_of, int64_t first_step) const {
  if (step_ns_of.size() == 1) return static_cast<double>(step_ns_of[0]);
  const auto before = static_cast<size_t>(first_step - run_->first_step);
  int64_t sum = 0, count = 0, sum_of_all = 0;
  for (size_t i = 1; i < step_ns_of.size(); ++i) {
    sum_of_all += step_ns_of[i];
    if (is_outlier_[before + i]) continue;
    sum += step_ns_of[i];
    ++count;
  }
  if (count == 0) {  // a sample of outliers
    sum = sum_of_all;
    count = static_cast<int64_t>(step_ns_of.size()) - 1;
  }
  return static_cast<double>(sum) / static_cast<double>(count);
}

// A ReplayState is one replay in progress.
class ReplayState {
 public:
  ReplayState(const Replayer& replayer, const ReplayChanges& changes, int64_t first_step)
      : replayer_(replayer), run_(*replayer.run_), changes_(changes), first_step_(first_step) {
    // The plan knows no rests. The ranks of a recorded run may begin late after one, each by
    // itself.
    if (IsAsPlanned()) return;
    for (const Replayer::Rest& rest : replayer.rests_) {
      if (rest.step > first_step) rests_.push_back(&rest);
    }
  }

  ReplayResult Play();

 private:
  struct Port {
    RecordedPort port;
    int64_t available = 0;  // tokens, or free slots
    bool input = false;
    bool wanted = false;
  };
  struct Actor {
    int32_t first_port = 0;
    int32_t num_ports = 0;
    int32_t missing = 0;
    int64_t acts_done = 0;
    int64_t limit = 0;
    int64_t since = 0;  // when it last got something that it lacked, or ended an act
    bool running = false;
    bool ready() const { return missing == 0 && !running && acts_done < limit; }
  };
  struct Register {
    int32_t producer_port = -1;
    std::vector<std::pair<RecordedActorId, int32_t>> consumers;  // actor, port
    std::vector<int64_t> released;                               // by consumer: tokens given up
    int64_t freed = 0;                                           // by all of them
    int64_t published = 0;
    int64_t slots = 0;
    double transfer_factor = 1;
    int64_t last_token_at = 0, last_credit_at = 0;  // messages do not overtake each other
    // A register within a rank whose queues work beside each other keeps for each slot the ends of
    // the act that wrote the slot last, and of its last reader. For other registers both are empty.
    std::vector<int64_t> written_at, read_at;
  };
  struct Rank {
    // Less priority, precedence, actor: the least goes first.
    using Ready = std::tuple<int64_t, int64_t, RecordedActorId>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    int64_t num_running = 0;  // acts that the device has been given and has not done
    int64_t last_end = 0;
  };
  struct Flight {
    RecordedActorId actor;
    int64_t number = 0;  // of the actor's acts
  };
  struct Queue {
    std::deque<Flight> flights;
    int64_t free_at = 0;  // when the last of them ends
  };
  enum class Effects : uint8_t { kAll, kWithinRank, kBetweenRanks };
  struct Event {
    enum Kind : int32_t { kActDone, kToken, kCredit, kRunBegins };
    int64_t at = 0;
    int64_t order = 0;
    Kind kind = kActDone;
    int32_t index = 0;  // queue (kActDone), register or rank
    bool operator>(const Event& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  void MakePorts();
  void RaiseLimits(RecordedRankId rank, int64_t before_step);
  void Push(int64_t at, Event::Kind kind, int32_t index) {
    events_.push({at, num_events_++, kind, index});
  }
  void Happen(const Event& event);
  void Start(RecordedRankId rank);
  int64_t HeldUntil(RecordedActorId actor, int64_t begin);
  void Finish(RecordedQueueId queue);
  void EndAct(RecordedActorId actor, int64_t end, Effects effects);
  void Perform(RecordedActorId actor, int64_t number, int64_t end, Effects effects);
  void Publish(RecordedRegisterId index, int64_t tokens);
  void Release(RecordedRegisterId index, int32_t port, int64_t tokens);
  void Arrive(RecordedActorId actor, int32_t port, int64_t count);
  void OnReady(RecordedActorId actor) {
    const RecordedActor& a = run_.actors[actor];
    ranks_[a.rank_index].ready.emplace(
        -int64_t{a.priority}, a.precedence.At(a.MicroBatchOf(actors_[actor].acts_done)), actor);
    Touch(a.rank_index);
  }
  bool IsAsPlanned() const { return changes_.times == ReplayChanges::Times::kPlanned; }
  int64_t TokenNs(RecordedRegisterId index, int64_t token) const {
    const int64_t planned = run_.registers[index].planned_way_ns;
    return IsAsPlanned() && planned > 0 ? planned : replayer_.TokenNs(index, token);
  }
  int64_t CreditNs(RecordedRegisterId index, int64_t token) const {
    const int64_t planned = replayer_.planned_credit_ns_;
    return IsAsPlanned() && planned > 0 ? planned : replayer_.CreditNs(index, token);
  }
  void Touch(RecordedRankId rank) { touched_.insert(rank); }
  int64_t LastEnd() const {
    int64_t end = 0;
    for (const Rank& rank : ranks_) end = std::max(end, rank.last_end);
    return end;
  }

  const Replayer& replayer_;
  const RecordedRun& run_;
  const ReplayChanges& changes_;
  const int64_t first_step_;  // the steps before it are over
  std::vector<const Replayer::Rest*> rests_;
  std::vector<Port> ports_;
  IdVector<RecordedActorId, Actor> actors_;
  IdVector<RecordedRegisterId, Register> registers_;
  IdVector<RecordedRankId, Rank> ranks_;
  IdVector<RecordedQueueId, Queue> queues_;
  std::set<RecordedRankId> touched_;  // ranks that may have an act to start
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t num_events_ = 0;
  int64_t now_ = 0;
  int64_t acts_left_ = 0;          // of the present run
  size_t run_number_ = 0;          // the rest before it, less 1
  std::vector<int64_t> step_end_;  // by step from the first
  // The rest between the run that begins with the step and the run before, by step from the first.
  std::vector<int64_t> rest_before_;
  ReplayResult result_;
};

// Sets all ports to their state when the steps before the first step are over.
void ReplayState::MakePorts() {
  registers_.resize(run_.registers.size());
  ranks_.resize(run_.ranks.size());
  queues_.resize(run_.ranks.empty() ? 0
                                    : run_.ranks.back().first_queue + run_.ranks.back().num_queues);
  for (const RecordedRegisterId i : registers_.ids()) {
    Register& r = registers_[i];
    r.slots = changes_.slots.empty() ? run_.registers[i].slots : changes_.slots[i];
    if (!changes_.transfer_factor.empty()) r.transfer_factor = changes_.transfer_factor[i];
    r.published = run_.registers[i].initial_tokens;
    const RecordedActorId producer = run_.registers[i].producer.actor;
    if (run_.registers[i].crosses_ranks || !producer.has_value() ||
        run_.ranks[run_.actors[producer].rank_index].num_queues == 1)
      continue;
    r.written_at.assign(static_cast<size_t>(r.slots), 0);
    r.read_at.assign(static_cast<size_t>(r.slots), 0);
  }
  for (const RecordedActorId a : run_.actors.ids()) {
    const RecordedActor& from = run_.actors[a];
    Actor& actor = actors_.emplace_back();
    actor.first_port = static_cast<int32_t>(ports_.size());
    actor.num_ports = static_cast<int32_t>(from.inputs.size() + from.outputs.size());
    actor.acts_done = actor.limit = from.ActsBefore(first_step_);
    for (const RecordedPort& port : from.inputs) {
      Register& r = registers_[port.register_index];
      r.consumers.emplace_back(a, static_cast<int32_t>(ports_.size()));
      r.released.push_back(port.TokensGivenUp(actor.acts_done));
      ports_.push_back({port, -port.TokensTaken(actor.acts_done), true});
    }
    for (const RecordedPort& port : from.outputs) {
      Register& r = registers_[port.register_index];
      r.producer_port = static_cast<int32_t>(ports_.size());
      r.published += port.TokensGivenUp(actor.acts_done);
      ports_.push_back({port, -port.TokensTaken(actor.acts_done), false});
    }
  }
  for (const RecordedRegisterId i : registers_.ids()) {
    Register& r = registers_[i];
    r.freed =
        r.released.empty() ? r.published : *std::min_element(r.released.begin(), r.released.end());
    for (const auto& [actor, port] : r.consumers) ports_[port].available += r.published;
    if (r.producer_port >= 0)
      ports_[r.producer_port].available += r.slots - run_.registers[i].initial_tokens + r.freed;
  }
  for (Actor& actor : actors_) {
    for (int32_t p = actor.first_port; p < actor.first_port + actor.num_ports; ++p) {
      Port& port = ports_[p];
      port.wanted = port.port.Begins(actor.acts_done) && port.available < port.port.tokens;
      actor.missing += port.wanted;
    }
  }
}

// Allows the acts of the steps before `before_step`.
void ReplayState::RaiseLimits(RecordedRankId rank, int64_t before_step) {
  for (const RecordedActorId a : actors_.ids()) {
    if (run_.actors[a].rank_index != rank) continue;
    Actor& actor = actors_[a];
    const bool was_ready = actor.ready();
    actor.limit = run_.actors[a].ActsBefore(before_step);
    actor.since = now_;
    if (!was_ready && actor.ready()) OnReady(a);
  }
  Touch(rank);
}

ReplayResult ReplayState::Play() {
  MakePorts();
  step_end_.assign(run_.last_step - first_step_ + 1, 0);
  rest_before_.assign(step_end_.size(), 0);
  result_.waited_for_slot_ns.assign(registers_.size(), 0);
  for (size_t run = 0; run <= rests_.size(); ++run) {
    const int64_t end = run == rests_.size() ? run_.last_step + 1 : rests_[run]->step;
    acts_left_ = 0;
    for (const RecordedActorId a : actors_.ids())
      acts_left_ += run_.actors[a].ActsBefore(end) - actors_[a].acts_done;
    run_number_ = run;
    const int64_t last_end = LastEnd();
    if (run > 0) {
      const Replayer::Rest& rest = *rests_[run - 1];
      step_end_[rest.step - 1 - first_step_] = last_end;  // of the run before
      rest_before_[rest.step - first_step_] =
          *std::min_element(rest.begin_after.begin(), rest.begin_after.end());
    }
    for (const RecordedRankId r : ranks_.ids()) {
      const int64_t after = run == 0 ? 0 : rests_[run - 1]->begin_after[r];
      Push(std::max(now_, last_end + after), Event::kRunBegins, r.value());
    }
    while (!events_.empty()) {
      now_ = events_.top().at;
      // All due events come before new acts, also events that a new act has made due.
      for (;;) {
        if (!events_.empty() && events_.top().at == now_) {
          const Event event = events_.top();
          events_.pop();
          Happen(event);
        } else if (!touched_.empty()) {
          const RecordedRankId rank = *touched_.begin();
          touched_.erase(touched_.begin());
          Start(rank);
        } else {
          break;
        }
      }
    }
    if (acts_left_ > 0) return result_;  // a standstill
  }
  result_.finished = true;
  if (run_.times.last_ends_run) step_end_.back() = LastEnd();
  int64_t before = 0;
  for (size_t i = 0; i < step_end_.size(); ++i) {
    const int64_t begin = before + rest_before_[i];
    before = std::max(step_end_[i], begin);
    result_.step_ns_of.push_back(before - begin);
  }
  result_.step_ns = replayer_.MeanStepNs(result_.step_ns_of, first_step_);
  return result_;
}

void ReplayState::Happen(const Event& event) {
  switch (event.kind) {
    case Event::kActDone: Finish(RecordedQueueId(event.index)); break;
    case Event::kToken: {
      const RecordedRegisterId id(event.index);
      for (const auto& [actor, port] : registers_[id].consumers) Arrive(actor, port, 1);
      break;
    }
    case Event::kCredit: {
      const RecordedRegisterId id(event.index);
      Arrive(run_.registers[id].producer.actor, registers_[id].producer_port, 1);
      break;
    }
    case Event::kRunBegins: {
      RaiseLimits(RecordedRankId(event.index),
                  run_number_ == rests_.size() ? run_.last_step + 1 : rests_[run_number_]->step);
      break;
    }
  }
}

void ReplayState::Start(RecordedRankId index) {
  Rank& rank = ranks_[index];
  const RecordedRank& device = run_.ranks[index];
  if (rank.num_running >= device.depth || rank.ready.empty()) return;
  const RecordedActorId a = std::get<2>(rank.ready.top());
  rank.ready.pop();
  Actor& actor = actors_[a];
  actor.running = true;
  ++rank.num_running;
  for (int32_t p = actor.first_port; p < actor.first_port + actor.num_ports; ++p) {
    if (ports_[p].port.Begins(actor.acts_done)) ports_[p].available -= ports_[p].port.tokens;
  }
  int64_t ns = replayer_.durations_[a][actor.acts_done - run_.actors[a].first_act];
  if (!changes_.act_factor.empty() && changes_.act_factor[a] != 1) {
    ns = std::lround(static_cast<double>(ns) * changes_.act_factor[a]);
  }
  if (IsAsPlanned() && run_.actors[a].planned_ns > 0) ns = run_.actors[a].planned_ns;
  Queue& queue = queues_[run_.actors[a].queue];
  int64_t begin = std::max(now_, queue.free_at);
  if (device.num_queues > 1) begin = HeldUntil(a, begin);
  queue.free_at = begin + ns;
  if (run_.actors[a].StepOf(actor.acts_done) == changes_.kept_step)
    result_.acts.push_back({a, actor.acts_done, begin, queue.free_at});
  queue.flights.push_back({a, actor.acts_done});
  Push(queue.free_at, Event::kActDone, run_.actors[a].queue.value());
  if (!device.takes_ahead()) return;
  EndAct(a, queue.free_at, Effects::kWithinRank);
  Touch(index);
}

// Returns when the next act of the actor can begin on its queue, which is free at `begin`: after
// the acts that wrote what it reads and the acts that read what it overwrites.
int64_t ReplayState::HeldUntil(RecordedActorId a, int64_t begin) {
  const Actor& actor = actors_[a];
  const auto latest = [](const std::vector<int64_t>& ends, int64_t first, int64_t tokens) {
    int64_t end = 0;
    for (int64_t token = first; token < first + tokens && !ends.empty(); ++token)
      end = std::max(end, ends[static_cast<size_t>(token) % ends.size()]);
    return end;
  };
  int64_t slots_at = begin;
  RecordedRegisterId slow_register;
  for (int32_t p = actor.first_port; p < actor.first_port + actor.num_ports; ++p) {
    const RecordedPort& port = ports_[p].port;
    const Register& r = registers_[port.register_index];
    const int64_t first = port.SpanOf(actor.acts_done) * port.tokens;
    if (ports_[p].input) {
      begin = std::max(begin, latest(r.written_at, first, port.tokens));
      continue;
    }
    const int64_t at =
        latest(r.read_at, run_.registers[port.register_index].initial_tokens + first, port.tokens);
    if (at <= slots_at) continue;
    slots_at = at;
    slow_register = port.register_index;
  }
  if (slots_at > begin) {
    result_.waited_for_slot_ns[slow_register] += slots_at - begin;
    begin = slots_at;
  }
  return begin;
}

void ReplayState::Finish(RecordedQueueId index) {
  Queue& queue = queues_[index];
  const Flight flight = queue.flights.front();
  queue.flights.pop_front();
  const RecordedActorId a = flight.actor;
  const RecordedRankId rank_index = run_.actors[a].rank_index;
  Rank& rank = ranks_[rank_index];
  --rank.num_running;
  rank.last_end = now_;
  --acts_left_;
  if (run_.actors[a].ends_step) {
    int64_t& step_end = step_end_[run_.actors[a].StepOf(flight.number) - first_step_];
    step_end = std::max(step_end, now_);
  }
  if (run_.ranks[rank_index].takes_ahead()) {
    Perform(a, flight.number, now_, Effects::kBetweenRanks);
  } else {
    EndAct(a, now_, Effects::kAll);
  }
  Touch(rank_index);
}

// Lets the actor go on to its next act. The present act ends at `end`, now or later.
void ReplayState::EndAct(RecordedActorId a, int64_t end, Effects effects) {
  Actor& actor = actors_[a];
  actor.since = now_;
  const int64_t number = actor.acts_done++;
  for (int32_t p = actor.first_port; p < actor.first_port + actor.num_ports; ++p) {
    Port& port = ports_[p];
    if (!port.port.Ends(number)) continue;
    port.wanted = port.available < port.port.tokens;
    actor.missing += port.wanted;
  }
  Perform(a, number, end, effects);
  // The flag changes only now, so that tokens that the actor gives to itself do not make it ready
  // twice.
  actor.running = false;
  if (actor.ready()) OnReady(a);
}

// Publishes and releases what the act that ends at `end` publishes and releases.
void ReplayState::Perform(RecordedActorId a, int64_t number, int64_t end, Effects effects) {
  const Actor& actor = actors_[a];
  for (int32_t p = actor.first_port + actor.num_ports - 1; p >= actor.first_port; --p) {
    const Port& port = ports_[p];
    if (!port.port.Ends(number)) continue;
    const RecordedRegisterId index = port.port.register_index;
    const bool leaves = run_.registers[index].crosses_ranks;
    if (effects != Effects::kAll && leaves != (effects == Effects::kBetweenRanks)) continue;
    Register& r = registers_[index];
    std::vector<int64_t>& at = port.input ? r.read_at : r.written_at;
    const int64_t first = port.port.SpanOf(number) * port.port.tokens +
                          (port.input ? 0 : run_.registers[index].initial_tokens);
    for (int64_t token = first; token < first + port.port.tokens && !at.empty(); ++token) {
      int64_t& last = at[static_cast<size_t>(token) % at.size()];
      last = std::max(last, end);
    }
    if (port.input) {
      Release(index, p, port.port.tokens);
    } else {
      Publish(index, port.port.tokens);
    }
  }
}

void ReplayState::Arrive(RecordedActorId index, int32_t p, int64_t count) {
  Port& port = ports_[p];
  port.available += count;
  if (!port.wanted || port.available < port.port.tokens) return;
  port.wanted = false;
  Actor& actor = actors_[index];
  const int64_t since = std::exchange(actor.since, now_);
  if (--actor.missing > 0 || actor.running) return;
  if (!port.input) result_.waited_for_slot_ns[port.port.register_index] += now_ - since;
  if (actor.ready()) OnReady(index);
}

void ReplayState::Publish(RecordedRegisterId index, int64_t tokens) {
  Register& r = registers_[index];
  const int64_t first = r.published;
  r.published += tokens;
  if (r.consumers.empty()) {
    r.freed = r.published;
    Arrive(run_.registers[index].producer.actor, r.producer_port, tokens);
    return;
  }
  if (!run_.registers[index].crosses_ranks) {
    for (const auto& [actor, port] : r.consumers) Arrive(actor, port, tokens);
    return;
  }
  for (int64_t token = first; token < r.published; ++token) {
    const double ns = static_cast<double>(TokenNs(index, token)) * r.transfer_factor;
    r.last_token_at = std::max(r.last_token_at, now_ + std::lround(ns));
    Push(r.last_token_at, Event::kToken, index.value());
  }
}

void ReplayState::Release(RecordedRegisterId index, int32_t port, int64_t tokens) {
  Register& r = registers_[index];
  for (size_t i = 0; i < r.consumers.size(); ++i) {
    if (r.consumers[i].second == port) r.released[i] += tokens;
  }
  const int64_t first = r.freed;
  r.freed = *std::min_element(r.released.begin(), r.released.end());
  if (r.freed == first) return;
  if (!run_.registers[index].crosses_ranks) {
    if (r.producer_port >= 0)
      Arrive(run_.registers[index].producer.actor, r.producer_port, r.freed - first);
    return;
  }
  for (int64_t token = first; token < r.freed; ++token) {
    const double ns = static_cast<double>(CreditNs(index, token)) * r.transfer_factor;
    r.last_credit_at = std::max(r.last_credit_at, now_ + std::lround(ns));
    Push(r.last_credit_at, Event::kCredit, index.value());
  }
}

ReplayResult Replayer::Play(const ReplayChanges& changes, int64_t first_step) const {
  return ReplayState(*this, changes, first_step).Play();
}

}  // namespace weir::trace
