#include "tools/trace/last_state.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

using Need = OpenAct::Need;

constexpr size_t kRanksNamed = 8;

// A NextAct is the first act that an actor has not done.
struct NextAct {
  int64_t number = 0;
  int64_t step = 0;
  Need need = Need::kNothing;
  RecordedRegisterId of;   // the register of which it needs something
  RecordedActorId holder;  // none: on a rank that the trace lacks
  bool is_open = false;    // it belongs to a step that the run had begun
};

class LastStateFinder {
 public:
  explicit LastStateFinder(const RecordedRun& run) : run_(run) {}

  LastState Find() {
    CountActs();
    for (const RecordedActorId a : run_.actors.ids()) FindNeed(a);
    FindEarliest();
    FindRoots();
    LastState state;
    state.missing = run_.missing;
    state.failures = run_.failures;
    for (const RecordedRankId rank : run_.ranks.ids()) state.acts.push_back(OpenActOf(rank));
    AddSentences(&state);
    return state;
  }

 private:
  // Finds the next act of each actor. Acts before the first that is kept count as done.
  void CountActs() {
    std::optional<int64_t> first, last;
    bool cut = false;
    for (const RecordedRank& rank : run_.ranks) {
      cut = cut || rank.acts_dropped > 0;
      for (const RecordedAct& act : rank.acts) {
        first = std::min(first.value_or(act.step), act.step);
        last = std::max(last.value_or(act.step), act.step);
      }
    }
    last_step_ = last.value_or(0);
    // The first step of a record that was cut is not whole.
    const int64_t known_from = first.value_or(0) + (cut ? 1 : 0);
    for (const RecordedActor& actor : run_.actors)
      next_.push_back({.number = std::max<int64_t>(0, actor.ActsBefore(known_from))});
    for (const RecordedRank& rank : run_.ranks) {
      for (const RecordedAct& act : rank.acts)
        next_[act.actor].number = std::max(next_[act.actor].number, act.number + 1);
    }
    for (const RecordedActorId a : run_.actors.ids()) {
      next_[a].step = run_.actors[a].StepOf(next_[a].number);
      next_[a].is_open = next_[a].step <= last_step_;
    }
  }

  // Finds the token or slot that an actor lacks. One that is known to be missing comes before one
  // that may be missing, on a rank that the trace lacks.
  void FindNeed(RecordedActorId a) {
    const RecordedActor& actor = run_.actors[a];
    NextAct& next = next_[a];
    NextAct unknown;
    for (const RecordedPort& port : actor.inputs) {
      if (!port.Begins(next.number)) continue;
      const RecordedRegister& r = run_.registers[port.register_index];
      const RecordedActorId producer = r.producer.actor;
      if (!producer.has_value()) {
        if (r.crosses_ranks && unknown.need == Need::kNothing)
          unknown = {.need = Need::kToken, .of = port.register_index};
        continue;
      }
      const RecordedPort& from = run_.actors[producer].outputs[r.producer.port];
      const int64_t published = r.initial_tokens + from.Ended(next_[producer].number) * from.tokens;
      if (RecordedRun::TokenTaken(port, next.number) < published) continue;
      SetNeed(Need::kToken, port.register_index, producer, &next);
      return;
    }
    for (const RecordedPort& port : actor.outputs) {
      if (!port.Begins(next.number)) continue;
      const RecordedRegister& r = run_.registers[port.register_index];
      const int64_t token = run_.TokenInTheWay(port, next.number);
      if (token < 0) continue;
      if (r.consumers.empty() && r.crosses_ranks && unknown.need == Need::kNothing)
        unknown = {.need = Need::kSlot, .of = port.register_index};
      for (const RecordedPortRef& consumer : r.consumers) {
        const RecordedPort& to = run_.actors[consumer.actor].inputs[consumer.port];
        if (token < to.TokensGivenUp(next_[consumer.actor].number)) continue;
        SetNeed(Need::kSlot, port.register_index, consumer.actor, &next);
        return;
      }
    }
    SetNeed(unknown.need, unknown.of, RecordedActorId(), &next);
  }

  static void SetNeed(Need need, RecordedRegisterId of, RecordedActorId holder, NextAct* next) {
    next->need = need;
    next->of = of;
    next->holder = holder;
  }

  void FindEarliest() {
    earliest_.assign(run_.ranks.size(), RecordedActorId());
    for (const RecordedActorId a : run_.actors.ids()) {
      if (!next_[a].is_open) continue;
      RecordedActorId& earliest = earliest_[run_.actors[a].rank_index];
      if (!earliest.has_value() || OrderOf(a) < OrderOf(earliest)) earliest = a;
    }
  }

  // Returns the first open act of a rank, or the act of the same rank that this act needs in the
  // end.
  OpenAct OpenActOf(RecordedRankId rank) const {
    const RecordedActorId earliest = earliest_[rank];
    OpenAct open;
    open.rank = run_.ranks[rank].rank;
    open.device = run_.ranks[rank].name;
    open.need = Need::kNoStep;
    open.failure = FailureOf(open.rank);
    open.queue = RecordedQueueId(run_.ranks[rank].first_queue);
    if (earliest.has_value()) Describe(LastOfRank(earliest), &open);
    for (const RecordedAct& act : run_.ranks[rank].acts) {
      if (run_.actors[act.actor].queue == open.queue) open.since = std::max(open.since, act.end);
    }
    return open;
  }
  std::tuple<int64_t, int64_t, bool> OrderOf(RecordedActorId a) const {
    return {next_[a].step, run_.actors[a].MicroBatchOf(next_[a].number),
            next_[a].need != Need::kNothing};
  }
  // Follows needs as long as they lead to actors of the same rank.
  RecordedActorId LastOfRank(RecordedActorId a) const {
    for (size_t i = 0; i < run_.actors.size(); ++i) {
      const RecordedActorId holder = next_[a].holder;
      if (!holder.has_value() || run_.actors[holder].rank_index != run_.actors[a].rank_index) break;
      a = holder;
    }
    return a;
  }

  void Describe(RecordedActorId a, OpenAct* open) const {
    const RecordedActor& actor = run_.actors[a];
    const NextAct& next = next_[a];
    open->queue = actor.queue;
    open->function = actor.function;
    open->step = next.step;
    open->micro_batch = actor.MicroBatchOf(next.number);
    open->need = next.need;
    if (next.need == Need::kNothing) return;
    const RecordedRegister& r = run_.registers[next.of];
    open->register_name = r.name;
    open->holder_rank = r.other_rank;
    if (!next.holder.has_value()) return;
    open->holder = run_.actors[next.holder].function;
    open->holder_rank = run_.ranks[run_.actors[next.holder].rank_index].rank;
  }

  // Follows the needs of each actor to the end: an act that needs nothing, or something of a
  // missing rank. None for a ring.
  void FindRoots() {
    enum class Seen : uint8_t { kNo, kOnTheWay, kYes };
    IdVector<RecordedActorId, Seen> seen(run_.actors.size(), Seen::kNo);
    root_.assign(run_.actors.size(), RecordedActorId());
    for (const RecordedActorId a : run_.actors.ids()) {
      std::vector<RecordedActorId> way;
      RecordedActorId at = a;
      while (seen[at] == Seen::kNo) {
        seen[at] = Seen::kOnTheWay;
        way.push_back(at);
        if (next_[at].holder.has_value()) at = next_[at].holder;
      }
      const bool is_end = !next_[at].holder.has_value();
      const RecordedActorId root = seen[at] == Seen::kYes ? root_[at] : is_end ? at : root_[at];
      for (const RecordedActorId passed : way) {
        root_[passed] = root;
        seen[passed] = Seen::kYes;
      }
    }
  }

  std::string RootText(RecordedActorId root) const {
    if (!root.has_value()) return "each other, in a ring";
    const NextAct& next = next_[root];
    if (next.need == Need::kNothing) {
      const RankId rank = run_.ranks[run_.actors[root].rank_index].rank;
      return absl::StrCat("`", run_.actors[root].function, "` on rank ", rank,
                          FailureOf(rank).empty()
                              ? ", which had all that it needs, or this was on its way"
                              : ", whose process failed");
    }
    const RankId rank = run_.registers[next.of].other_rank;
    return rank.has_value() ? absl::StrCat("rank ", rank, ", which the trace lacks")
                            : "a rank that the trace lacks";
  }

  // Returns the failure of the rank's process in words, or nothing.
  std::string FailureOf(RankId rank) const {
    for (const MarkedFailure& failure : run_.failures) {
      if (failure.rank == rank) return failure.text;
    }
    return "";
  }
  void AddFailures(LastState* state) const;
  void AddSentences(LastState* state) const;

  const RecordedRun& run_;
  int64_t last_step_ = 0;  // that any act belongs to
  IdVector<RecordedActorId, NextAct> next_;
  IdVector<RecordedRankId, RecordedActorId> earliest_;  // none: the rank has no open act
  IdVector<RecordedActorId, RecordedActorId> root_;
};

// Adds a sentence for each failure; the ranks of one process fail together.
void LastStateFinder::AddFailures(LastState* state) const {
  std::map<std::pair<int64_t, std::string>, std::vector<std::string>> ranks_of;
  for (const MarkedFailure& failure : run_.failures) {
    std::vector<std::string>& ranks = ranks_of[{failure.ns, failure.text}];
    if (failure.rank.has_value()) ranks.push_back(absl::StrCat(failure.rank));
  }
  for (const auto& [failure, ranks] : ranks_of) {
    state->sentences.push_back(absl::StrCat(
        ranks.empty() ? "The job failed: "
                      : absl::StrCat("The process of ", ranks.size() == 1 ? "rank " : "ranks ",
                                     Listed(ranks, kRanksNamed), " failed: "),
        failure.second, "."));
  }
}

void LastStateFinder::AddSentences(LastState* state) const {
  AddFailures(state);
  std::vector<std::string> missing;
  for (const RankId rank : state->missing) missing.push_back(absl::StrCat(rank));
  if (!missing.empty()) {
    state->sentences.push_back(absl::StrCat(
        "The trace lacks ", missing.size() == 1 ? "rank " : "ranks ", Listed(missing, kRanksNamed),
        missing.size() == 1 ? ": its process ended, or hung, before it could write it."
                            : ": their processes ended, or hung, before they could write it."));
  }
  int64_t open = 0;
  std::map<RecordedActorId, int64_t> by_root;
  for (const RecordedActorId a : run_.actors.ids()) {
    if (!next_[a].is_open) continue;
    ++open;
    ++by_root[root_[a]];
  }
  std::map<std::string, int64_t> roots;  // several acts may need something of one missing rank
  for (const auto& [root, actors] : by_root) roots[RootText(root)] += actors;
  const std::string steps = run_.times.steps.empty()
                                ? "No step is whole in the trace"
                                : absl::StrCat("The last step that is whole in the trace is step ",
                                               NumberOfStep(run_.times.steps.back().step));
  if (open == 0) {
    state->sentences.push_back(
        absl::StrCat(steps, "; all ranks that the trace holds have done all acts of it."));
    return;
  }
  state->sentences.push_back(absl::StrCat(steps, "; ", Counted(open, "actor"),
                                          " had acts left in the steps that were begun."));
  const auto most = std::max_element(
      roots.begin(), roots.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string depend =
      open == 1 ? "This actor depends"
                : absl::StrCat(most->second, " of these ", open,
                               most->second == 1 ? " actors depends" : " actors depend");
  state->sentences.push_back(absl::StrCat(depend, " in the end on ", most->first, "."));
}

}  // namespace

std::string OpenAct::Reason() const {
  switch (need) {
    case Need::kNothing:
      return failure.empty() ? "had all that it needs, or this was on its way"
                             : absl::StrCat(
                                   "was under way or about to begin when the process "
                                   "failed: ",
                                   failure);
    case Need::kNoStep: return "has done all acts of the steps in the trace";
    case Need::kToken:
    case Need::kSlot: break;
  }
  const std::string other = holder_rank.has_value() ? absl::StrCat("rank ", holder_rank) : "a rank";
  return absl::StrCat("needs ", need == Need::kToken ? "a token of " : "a free slot of ",
                      register_name, need == Need::kToken ? " from " : ", held by ",
                      holder.empty() ? absl::StrCat(other, ", which the trace lacks")
                                     : absl::StrCat("`", holder, "` on ", other));
}

std::string OpenAct::Text() const {
  if (need == Need::kNoStep) return absl::StrCat("rank ", rank, " ", Reason());
  return absl::StrCat("rank ", rank, ": `", function, "`, step ", NumberOfStep(step),
                      ", micro-batch ", micro_batch, ", ", Reason());
}

std::optional<LastState> FindLastState(const RecordedRun& run) {
  if (run.missing.empty() && run.failures.empty() && !run.times.steps.empty() &&
      run.times.last_ends_run)
    return std::nullopt;
  return LastStateFinder(run).Find();
}

std::string ToText(const LastState& state) {
  std::string text = "\nthe last state\n";
  for (const std::string& sentence : state.sentences) AppendLine("  " + sentence, 4, &text);
  for (const OpenAct& act : state.acts) AppendLine("  " + act.Text(), 4, &text);
  return text;
}

}  // namespace weir::trace
