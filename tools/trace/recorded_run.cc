#include "tools/trace/recorded_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer_note_codec.h"
#include "runtime/trace/trace_names.h"

namespace weir::trace {
namespace {

using namespace plan_limits;

absl::Status Unusable(const std::string& found) {
  return absl::FailedPreconditionError(absl::StrCat("the run cannot be replayed: ", found));
}

bool IsCount(int64_t n, int64_t least) { return n >= least && n < kRecordedNumberMax; }
bool IsBytes(int64_t n) { return n >= 0 && n <= plan_limits::kBytesMax; }

// A RunBuilder joins the ranks' facts of their plans.
class RunBuilder {
 public:
  enum class Gaps : uint8_t { kRefused, kAllowed };

  RunBuilder(const TraceReader& trace, Gaps gaps)
      : trace_(trace), gaps_(gaps), enders_(FindStepEnders(trace)) {}

  absl::StatusOr<RecordedRun> Build() {
    for (const auto& [track, process] : trace_.processes) {
      if (process.rank.has_value()) processes_[process.rank] = &process;
    }
    if (processes_.empty()) return Unusable("the trace names no rank");
    for (const auto& [rank, process] : processes_) {
      auto facts = trace_.plans.find(rank);
      if (facts == trace_.plans.end()) {
        return Unusable(absl::StrCat("the trace does not say what the plan of rank ", rank,
                                     " is; traces of older builds do not: write a new one"));
      }
      WEIR_RETURN_IF_ERROR(AddRank(*process, facts->second));
    }
    FindMissingRanks();
    for (const RecordedRegister& r : run_.registers) {
      if (gaps_ == Gaps::kRefused && r.crosses_ranks &&
          (!r.producer.actor.has_value() || r.consumers.empty())) {
        return Unusable(absl::StrCat("the other end of register '", r.name,
                                     "' is on a rank that the trace lacks"));
      }
    }
    run_.failures = trace_.failures;
    std::stable_sort(run_.failures.begin(), run_.failures.end(),
                     [](const MarkedFailure& a, const MarkedFailure& b) { return a.ns < b.ns; });
    run_.times = FindStepTimes(trace_);
    if (gaps_ == Gaps::kAllowed) {
      IndexAllActs();
    } else {
      WEIR_RETURN_IF_ERROR(ChooseSteps());
    }
    return std::move(run_);
  }

 private:
  absl::Status AddRank(const TraceProcess& process, const proto::PlanFacts& facts);
  static absl::Status AddMemory(const proto::PlanFacts& facts, RecordedRank* rank);
  absl::Status AddRegisters(const proto::PlanFacts& facts,
                            IdVector<RegisterId, RecordedRegisterId>* register_of);
  absl::Status AddActor(const proto::PlanFacts& facts, const proto::ActorFacts& from,
                        const IdVector<RegisterId, RecordedRegisterId>& register_of);
  absl::Status AddPorts(const google::protobuf::RepeatedPtrField<proto::PortFacts>& from,
                        const IdVector<RegisterId, RecordedRegisterId>& register_of,
                        std::vector<RecordedPort>* to);
  absl::Status AddActs(const TraceProcess& process);
  absl::StatusOr<RecordedAct> ActOf(
      const TraceSlice& slice,
      const std::unordered_map<std::string, RecordedActorId>& actor_of) const;
  void JoinQueues(RecordedRank* rank) const;
  void SetWait(const TraceSlice& wait, RecordedAct* act) const;
  void FindMissingRanks();
  absl::Status ChooseSteps();
  void IndexAllActs();
  // Returns the recorded actor of an actor of the rank that is being added.
  RecordedActorId RecordedOf(ActorId actor) const {
    return RecordedActorId(first_actor_.value() + actor.value());
  }
  static std::string Text(const proto::PlanFacts& facts, uint32_t index) {
    return index < static_cast<uint32_t>(facts.text_size()) ? facts.text(static_cast<int>(index))
                                                            : std::string();
  }

  const TraceReader& trace_;
  const Gaps gaps_;
  const std::map<RankId, IdVector<ActorId, char>> enders_;
  std::map<RankId, const TraceProcess*> processes_;
  std::map<EdgeId, RecordedRegisterId> register_of_edge_;
  int32_t num_queues_ = 0;  // of the ranks so far
  // The next fields belong to the rank that is being added.
  RecordedActorId first_actor_;
  std::set<std::pair<std::string, RecordedRegisterId>> registers_named_;
  RecordedRun run_;
};

absl::Status RunBuilder::AddRank(const TraceProcess& process, const proto::PlanFacts& facts) {
  RecordedRank& rank = run_.ranks.emplace_back();
  rank.rank = process.rank;
  rank.name = process.name;
  rank.stands_for = ClassOf(process.rank, facts).ranks;
  rank.acts_dropped = process.acts_dropped;
  if (facts.depth() < 1 || facts.depth() > kDepthMax || facts.num_queues() < 1 ||
      facts.num_queues() > kQueuesMax) {
    return Unusable(absl::StrCat("the device of rank ", rank.rank, " has impossible numbers"));
  }
  rank.depth = facts.depth();
  rank.num_queues = rank.takes_ahead() ? facts.num_queues() : 1;
  rank.first_queue = num_queues_;
  num_queues_ += rank.num_queues;
  WEIR_RETURN_IF_ERROR(AddMemory(facts, &rank));
  first_actor_ = run_.actors.next_id();
  registers_named_.clear();
  IdVector<RegisterId, RecordedRegisterId> register_of;
  WEIR_RETURN_IF_ERROR(AddRegisters(facts, &register_of));
  const IdVector<ActorId, char>& ends_step = enders_.at(process.rank);
  for (const proto::ActorFacts& actor : facts.actor())
    WEIR_RETURN_IF_ERROR(AddActor(facts, actor, register_of));
  for (const ActorId a : ends_step.ids()) run_.actors[RecordedOf(a)].ends_step = ends_step[a] != 0;
  return AddActs(process);
}

absl::Status RunBuilder::AddMemory(const proto::PlanFacts& facts, RecordedRank* rank) {
  rank->arena_bytes = facts.arena_bytes();
  rank->scratch_bytes = facts.scratch_bytes();
  bool possible = IsBytes(rank->arena_bytes) && IsBytes(rank->scratch_bytes);
  for (const proto::StateFacts& from : facts.state()) {
    rank->states.push_back({Text(facts, from.name_text()), Text(facts, from.class_text()),
                            from.bytes(), from.arena_offset()});
    possible = possible && IsBytes(from.bytes()) && IsBytes(from.arena_offset());
  }
  if (possible) return absl::OkStatus();
  return Unusable(absl::StrCat("the memory of rank ", rank->rank, " has impossible numbers"));
}

absl::Status RunBuilder::AddRegisters(const proto::PlanFacts& facts,
                                      IdVector<RegisterId, RecordedRegisterId>* register_of) {
  std::vector<std::shared_ptr<const TransferNote>> notes;
  for (const proto::TransferNote& note : facts.note())
    notes.push_back(std::make_shared<const TransferNote>(FromProto(note)));
  for (const proto::RegisterFacts& from : facts.registers()) {
    if (from.on_time()) {
      register_of->push_back(RecordedRegisterId());
      continue;
    }
    RecordedRegisterId index = run_.registers.next_id();
    if (from.crosses_ranks())
      index = register_of_edge_.try_emplace(EdgeId(from.edge()), index).first->second;
    register_of->push_back(index);
    registers_named_.emplace(Text(facts, from.name_text()), index);
    if (run_.registers.Has(index)) {  // its other end told of it, but for the memory
      if (from.has_arena_offset()) run_.registers[index].arena_offset = from.arena_offset();
      continue;
    }
    RecordedRegister& to = run_.registers.emplace_back();
    to.name = Text(facts, from.name_text());
    to.family = from.crosses_ranks() ? Text(facts, from.boxing_text()) : to.name;
    to.bytes = from.bytes();
    to.slots = from.slots();
    to.initial_tokens = from.initial_tokens();
    to.crosses_ranks = from.crosses_ranks();
    to.planned_way_ns = std::max<int64_t>(0, from.planned_way_ns());
    if (from.has_arena_offset()) to.arena_offset = from.arena_offset();
    if (from.has_note() && from.note() < notes.size()) to.note = notes[from.note()];
    if (from.has_other_rank() && from.other_rank() >= 0) to.other_rank = RankId(from.other_rank());
    if (to.bytes < 0 || !IsCount(to.slots, 1) || !IsCount(to.initial_tokens, 0) ||
        to.initial_tokens > to.slots) {
      return Unusable(absl::StrCat("register '", to.name, "' has impossible numbers"));
    }
  }
  return absl::OkStatus();
}

absl::Status RunBuilder::AddPorts(const google::protobuf::RepeatedPtrField<proto::PortFacts>& from,
                                  const IdVector<RegisterId, RecordedRegisterId>& register_of,
                                  std::vector<RecordedPort>* to) {
  for (const proto::PortFacts& port : from) {
    const Span span = FromProto(port.span());
    const RegisterId id(port.register_id());
    if (register_of.Has(id) && !register_of[id].has_value()) continue;  // left out
    if (!register_of.Has(id) || !IsCount(span.period, 1) || !IsCount(span.tokens, 1) ||
        span.tokens > kRecordedTokensMax || !IsCount(span.phase, 0) || span.phase >= span.period ||
        span.tokens > run_.registers[register_of[id]].slots) {
      return Unusable("a port has impossible numbers");
    }
    to->push_back({span, register_of[id]});
  }
  return absl::OkStatus();
}

absl::Status RunBuilder::AddActor(const proto::PlanFacts& facts, const proto::ActorFacts& from,
                                  const IdVector<RegisterId, RecordedRegisterId>& register_of) {
  const RecordedActorId index = run_.actors.next_id();
  RecordedActor& to = run_.actors.emplace_back();
  to.rank_index = RecordedRankId(static_cast<int32_t>(run_.ranks.size()) - 1);
  const RecordedRank& rank = run_.ranks.back();
  to.queue = RecordedQueueId(rank.first_queue + from.queue());
  to.name = Text(facts, from.name_text());
  to.function = Text(facts, from.function_text());
  if (to.function.empty()) to.function = to.name;
  to.phase = Text(facts, from.phase_text());
  to.priority = from.priority();
  const Precedence& precedence = to.precedence = FromProto(from.precedence());
  to.planned_ns = std::max<int64_t>(0, from.planned_ns());
  static_cast<Rate&>(to) = FromProto(from.rate());
  if (from.queue() < 0 || from.queue() >= rank.num_queues || !IsCount(to.acts_per_step, 1) ||
      to.acts_per_step > kRecordedActsPerStepMax || !IsCount(to.chunks, 1) ||
      !IsCount(to.every, 1) || !IsCount(to.every_phase, 0) || to.every_phase >= to.every ||
      precedence.first < -kPrecedenceMax || precedence.first > kPrecedenceMax ||
      !IsCount(precedence.group, 1) || !IsCount(precedence.group_stride, 0) ||
      !IsCount(precedence.stride, 0)) {
    return Unusable(absl::StrCat("actor '", to.name, "' has impossible numbers"));
  }
  WEIR_RETURN_IF_ERROR(AddPorts(from.input(), register_of, &to.inputs));
  WEIR_RETURN_IF_ERROR(AddPorts(from.output(), register_of, &to.outputs));
  int32_t num_inputs = 0;
  for (const proto::PortFacts& port : from.input()) {
    const RecordedRegisterId id = register_of[RegisterId(port.register_id())];
    if (!id.has_value()) continue;  // left out
    RecordedRegister& r = run_.registers[id];
    r.consumers.push_back({index, num_inputs++});
    if (!r.crosses_ranks) continue;  // of two names, the reader's
    const proto::RegisterFacts& own = facts.registers(port.register_id());
    r.name = Text(facts, own.name_text());
    r.family = Text(facts, own.boxing_text());
    if (own.has_other_rank() && own.other_rank() >= 0) r.other_rank = RankId(own.other_rank());
  }
  for (size_t i = 0; i < to.outputs.size(); ++i) {
    RecordedPortRef& producer = run_.registers[to.outputs[i].register_index].producer;
    if (producer.actor.has_value())
      return Unusable(absl::StrCat("two actors produce what '", to.name, "' does"));
    producer = {index, static_cast<int32_t>(i)};
  }
  return absl::OkStatus();
}

absl::Status RunBuilder::AddActs(const TraceProcess& process) {
  std::unordered_map<std::string, RecordedActorId> actor_of;
  for (RecordedActorId id = first_actor_; run_.actors.Has(id); id = RecordedActorId(id.value() + 1))
    actor_of[run_.actors[id].name] = id;
  RecordedRank& rank = run_.ranks.back();
  const TraceSlice* wait = nullptr;
  for (const TraceSlice& slice : process.slices) {
    if (slice.category == kTraceRest)
      rank.runs.push_back({static_cast<int32_t>(rank.acts.size()), slice.end});
    if (slice.category == kTraceWaitsForInput || slice.category == kTraceWaitsForCredit ||
        slice.category == kTraceWaitsForGroup)
      wait = &slice;
    if (slice.category != kTraceAct) continue;
    WEIR_ASSIGN_OR_RETURN(RecordedAct act, ActOf(slice, actor_of));
    if (wait != nullptr && wait->end <= act.start) {
      SetWait(*wait, &act);
      if (rank.takes_ahead()) act.ready = wait->end;
    }
    rank.acts.push_back(act);
    wait = nullptr;
  }
  JoinQueues(&rank);
  return absl::OkStatus();
}

absl::StatusOr<RecordedAct> RunBuilder::ActOf(
    const TraceSlice& slice,
    const std::unordered_map<std::string, RecordedActorId>& actor_of) const {
  const auto number = [&slice](const char* name) {
    auto at = slice.numbers.find(name);
    return at == slice.numbers.end() ? int64_t{0} : at->second;
  };
  RecordedActorId actor;
  if (auto at = actor_of.find(slice.name); at != actor_of.end()) actor = at->second;
  if (auto at = slice.numbers.find(kTraceActor);
      at != slice.numbers.end() && at->second >= 0 && at->second < kRecordedNumberMax) {
    actor = RecordedOf(ActorId(static_cast<int32_t>(std::min<int64_t>(at->second, 1 << 28))));
  }
  if (!run_.actors.Has(actor)) {
    return Unusable(absl::StrCat("the plan of rank ", run_.ranks.back().rank, " has no actor '",
                                 slice.name.text(), "'"));
  }
  const RecordedActor& of = run_.actors[actor];
  RecordedAct act;
  act.actor = actor;
  act.step = trace_.StepOf(slice).value_or(-1);
  const int64_t in_step = number("micro-batch") * of.chunks + number("chunk");
  if (!IsCount(act.step, 0) || act.step % of.every != of.every_phase ||
      !IsCount(number("micro-batch"), 0) || !IsCount(number("chunk"), 0) ||
      number("micro-batch") >= of.acts_per_step || in_step >= of.acts_per_step) {
    return Unusable(absl::StrCat("an act of '", of.name, "' has impossible numbers"));
  }
  act.number = of.ActsBefore(act.step) + in_step;
  act.start = act.ready = slice.begin;
  act.end = slice.end;
  if (auto at = slice.numbers.find(kTraceCpu); at != slice.numbers.end() && IsCount(at->second, 0))
    act.cpu_ns = at->second * 1000;
  return act;
}

// The host hears of acts of several queues in another order than that in which they ended.
void RunBuilder::JoinQueues(RecordedRank* rank) const {
  if (rank->num_queues > 1) {
    std::stable_sort(rank->acts.begin(), rank->acts.end(),
                     [](const RecordedAct& a, const RecordedAct& b) {
                       return std::tie(a.end, a.start) < std::tie(b.end, b.start);
                     });
  }
  std::vector<int32_t> last(static_cast<size_t>(rank->num_queues), -1);
  for (size_t i = 0; i < rank->acts.size(); ++i) {
    RecordedAct& act = rank->acts[i];
    int32_t& previous = last[run_.actors[act.actor].queue.value() - rank->first_queue];
    act.previous = std::exchange(previous, static_cast<int32_t>(i));
  }
}

void RunBuilder::SetWait(const TraceSlice& wait, RecordedAct* act) const {
  act->waited_for_group = wait.category == kTraceWaitsForGroup;
  if (act->waited_for_group) return;
  const bool input = wait.category == kTraceWaitsForInput;
  auto name = wait.texts.find("register");
  if (name == wait.texts.end()) return;
  const RecordedActor& actor = run_.actors[act->actor];
  for (const RecordedPort& port : input ? actor.inputs : actor.outputs) {
    if (!port.Begins(act->number) ||
        registers_named_.count({name->second, port.register_index}) == 0)
      continue;
    act->wait = input ? RecordedAct::Wait::kInput : RecordedAct::Wait::kCredit;
    act->waited_register = port.register_index;
    return;
  }
}

void RunBuilder::FindMissingRanks() {
  const int64_t ranks = std::clamp<int64_t>(trace_.JobNumber(kTraceRanks), 0, kRanksMax);
  run_.missing = RanksInNoClass(ranks, run_.Classes());
}

// Indexes the acts from the first whole step on, or all acts if no step is whole. The index of an
// actor whose acts lie far apart, as a damaged file has them, stays empty.
void RunBuilder::IndexAllActs() {
  constexpr int64_t kSpreadMax = 4, kSpreadMin = 1024;  // places of the index, per act and in all
  std::optional<int64_t> first, last;
  IdVector<RecordedActorId, int64_t> acts(run_.actors.size(), 0), end(run_.actors.size(), 0);
  for (const RecordedRank& rank : run_.ranks) {
    for (const RecordedAct& act : rank.acts) {
      first = std::min(first.value_or(act.step), act.step);
      last = std::max(last.value_or(act.step), act.step);
      ++acts[act.actor];
      end[act.actor] = std::max(end[act.actor], act.number + 1);
    }
  }
  const bool whole = !run_.times.steps.empty();
  run_.first_step = whole ? run_.times.steps.front().step : first.value_or(0);
  run_.last_step = whole ? run_.times.steps.back().step : last.value_or(0);
  for (const RecordedActorId a : run_.actors.ids()) {
    RecordedActor& actor = run_.actors[a];
    actor.first_act = actor.ActsBefore(run_.first_step);
    const int64_t places = end[a] - actor.first_act;
    if (places > 0 && places <= kSpreadMax * acts[a] + kSpreadMin) actor.acts.assign(places, -1);
  }
  for (RecordedRank& rank : run_.ranks) {
    for (size_t i = 0; i < rank.acts.size(); ++i) {
      RecordedActor& actor = run_.actors[rank.acts[i].actor];
      const int64_t at = rank.acts[i].number - actor.first_act;
      if (at >= 0 && at < static_cast<int64_t>(actor.acts.size()))
        actor.acts[at] = static_cast<int32_t>(i);
    }
  }
}

// Chooses the last steps of which everything is kept; then indexes their acts.
absl::Status RunBuilder::ChooseSteps() {
  if (run_.times.steps.empty())
    return Unusable("no step is complete in the trace, which keeps the last acts only");
  run_.first_step = run_.times.steps.front().step;
  run_.last_step = run_.times.steps.back().step;
  for (RecordedRank& rank : run_.ranks) {
    for (size_t i = 0; i < rank.acts.size(); ++i) {
      const RecordedAct& act = rank.acts[i];
      if (act.step < run_.first_step || act.step > run_.last_step) continue;
      RecordedActor& actor = run_.actors[act.actor];
      actor.first_act = actor.ActsBefore(run_.first_step);
      actor.acts.resize(actor.ActsBefore(run_.last_step + 1) - actor.first_act, -1);
      actor.acts[act.number - actor.first_act] = static_cast<int32_t>(i);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t RecordedRank::FreeSince(const RecordedAct& act, int64_t begin) const {
  const int64_t since = act.previous < 0 ? begin : acts[act.previous].end;
  const auto place = static_cast<int32_t>(&act - acts.data());
  const auto rest = std::lower_bound(runs.begin(), runs.end(), place,
                                     [](const RunBegin& run, int32_t at) { return run.act < at; });
  return rest != runs.end() && rest->act == place ? std::max(since, rest->at) : since;
}

const RecordedAct* RecordedRun::Publisher(RecordedRegisterId register_index, int64_t token) const {
  const RecordedRegister& r = registers[register_index];
  if (token < r.initial_tokens || !r.producer.actor.has_value()) return nullptr;
  const RecordedPort& port = actors[r.producer.actor].outputs[r.producer.port];
  return Act(r.producer.actor, port.LastAct((token - r.initial_tokens) / port.tokens));
}

const RecordedAct* RecordedRun::LastReader(RecordedRegisterId register_index, int64_t token) const {
  const RecordedAct* last = nullptr;
  for (const RecordedPortRef& consumer : registers[register_index].consumers) {
    const RecordedPort& port = actors[consumer.actor].inputs[consumer.port];
    const RecordedAct* act =
        token < 0 ? nullptr : Act(consumer.actor, port.LastAct(token / port.tokens));
    if (act == nullptr) return nullptr;
    if (last == nullptr || act->end > last->end) last = act;
  }
  return last;
}

RankId RecordedRun::SenderOf(const RecordedRegister& r) const {
  const RecordedRank& producer = ranks[actors[r.producer.actor].rank_index];
  return producer.stands_for.Has(r.other_rank) ? r.other_rank : producer.rank;
}

std::vector<RankClass> RecordedRun::Classes() const {
  std::vector<RankClass> classes;
  for (const RecordedRank& rank : ranks) classes.push_back({rank.rank, rank.stands_for});
  return classes;
}

double RecordedRun::TokensPerStep(const RecordedRegister& r) const {
  const RecordedActor& producer = actors[r.producer.actor];
  const RecordedPort& port = producer.outputs[r.producer.port];
  return static_cast<double>(port.tokens * producer.acts_per_step) /
         static_cast<double>(port.period * producer.every);
}

const RecordedAct* RecordedRun::Cause(const RecordedAct& act) const {
  const RecordedActor& actor = actors[act.actor];
  if (act.wait == RecordedAct::Wait::kNone) return nullptr;
  const bool input = act.wait == RecordedAct::Wait::kInput;
  for (const RecordedPort& port : input ? actor.inputs : actor.outputs) {
    if (port.register_index != act.waited_register) continue;
    return input ? Publisher(port.register_index, TokenTaken(port, act.number))
                 : LastReader(port.register_index, TokenInTheWay(port, act.number));
  }
  return nullptr;
}

absl::StatusOr<RecordedRun> ReadRecordedRun(const TraceReader& trace) {
  return RunBuilder(trace, RunBuilder::Gaps::kRefused).Build();
}

absl::StatusOr<RecordedRun> ReadRunWithGaps(const TraceReader& trace) {
  return RunBuilder(trace, RunBuilder::Gaps::kAllowed).Build();
}

}  // namespace weir::trace
