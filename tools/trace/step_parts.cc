#include "tools/trace/step_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "runtime/trace/trace_names.h"

namespace weir::trace {
namespace {

constexpr size_t kNumKinds = static_cast<size_t>(StepPartKind::kBetweenActs) + 1;
using Times = std::array<int64_t, kNumKinds>;  // by kind, of all queues

// A Window sums the parts of intervals that lie in the steady steps.
class Window {
 public:
  explicit Window(const StepTimes& times) : times_(times), first_(times.FirstSteady()) {}
  void Add(StepPartKind kind, int64_t from, int64_t to) {
    if (from < to) sums_[static_cast<size_t>(kind)] += times_.Inside(from, to, first_);
  }
  int64_t begin() const { return times_.steps[first_].begin; }
  int64_t ns() const { return times_.SumFrom(first_); }
  size_t num_steps() const { return times_.steps.size() - first_; }
  const Times& sums() const { return sums_; }

 private:
  const StepTimes& times_;
  const size_t first_;
  Times sums_ = {};
};

// Passes hold when the ranks compute passes: for each step, from its first forward act to its last
// act of a backward pass. Spans that overlap are one.
class Passes {
 public:
  explicit Passes(const RecordedRun& run);
  bool HasQueue(RecordedQueueId queue) const { return queues_.count(queue) > 0; }
  // Calls `visit(from, to)` for each part of [from, to) in which a pass goes on.
  template <typename Visitor>
  void ForEachInside(int64_t from, int64_t to, const Visitor& visit) const {
    for (auto span = spans_.upper_bound(from); span != spans_.end(); ++span) {
      const auto& [end, begin] = *span;
      if (begin >= to) break;
      visit(std::max(from, begin), std::min(to, end));
    }
  }

 private:
  std::set<RecordedQueueId> queues_;
  std::map<int64_t, int64_t> spans_;  // begin by end, disjoint
};

Passes::Passes(const RecordedRun& run) {
  struct Span {
    int64_t begin, end;
  };
  std::map<int64_t, Span> of_step;
  for (const RecordedRank& rank : run.ranks) {
    for (const RecordedAct& act : rank.acts) {
      const RecordedActor& actor = run.actors[act.actor];
      if (!IsPassPhase(actor.phase)) continue;
      queues_.insert(actor.queue);
      Span& span = of_step.try_emplace(act.step, Span{act.start, act.end}).first->second;
      span.begin = std::min(span.begin, act.start);
      span.end = std::max(span.end, act.end);
    }
  }
  std::vector<Span> spans;
  for (const auto& [step, span] : of_step) spans.push_back(span);
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (Span span : spans) {
    if (!spans_.empty() && spans_.rbegin()->first >= span.begin) {
      const auto last = std::prev(spans_.end());
      span = {last->second, std::max(last->first, span.end)};
      spans_.erase(last);
    }
    spans_[span.end] = span.begin;
  }
}

// Divides a wait for a token that its sender had not sent into the bubble and the rest.
void AddLateSender(const RecordedRun& run, const Passes& passes, const RecordedAct& act,
                   int64_t from, int64_t to, Window* window) {
  const auto& note = run.registers[act.waited_register].note;
  int64_t late_since = from;
  if (note != nullptr && note->from_stage != note->to_stage &&
      passes.HasQueue(run.actors[act.actor].queue)) {
    passes.ForEachInside(from, to, [&](int64_t begin, int64_t end) {
      window->Add(StepPartKind::kLateSender, late_since, begin);
      window->Add(StepPartKind::kBubble, begin, end);
      late_since = end;
    });
  }
  window->Add(StepPartKind::kLateSender, late_since, to);
}

// Divides the time in which a queue waited for `act` from `from` on.
void AddWait(const RecordedRun& run, const Passes& passes, const RecordedAct& act, int64_t from,
             Window* window) {
  const int64_t ready = std::clamp(act.ready, from, std::max(from, act.start));
  switch (act.wait) {
    case RecordedAct::Wait::kNone:
      window->Add(act.waited_for_group ? StepPartKind::kLateSender : StepPartKind::kBetweenActs,
                  from, ready);
      break;
    case RecordedAct::Wait::kCredit: window->Add(StepPartKind::kCredit, from, ready); break;
    case RecordedAct::Wait::kInput: {
      if (!run.registers[act.waited_register].crosses_ranks) {
        window->Add(StepPartKind::kOwnInput, from, ready);
        break;
      }
      const RecordedAct* sender = run.Cause(act);
      const int64_t sent = sender == nullptr ? from : std::clamp(sender->end, from, ready);
      AddLateSender(run, passes, act, from, sent, window);
      window->Add(StepPartKind::kUnderWay, sent, ready);
      break;
    }
  }
  window->Add(StepPartKind::kBetweenActs, ready, act.start);
}

void AddRank(const RecordedRun& run, const Passes& passes, const RecordedRank& rank,
             Window* window) {
  for (const RecordedAct& act : rank.acts) {
    AddWait(run, passes, act, rank.FreeSince(act, window->begin()), window);
    window->Add(KindOfWork(run.actors[act.actor]), act.start, act.end);
  }
}

}  // namespace

StepPartKind KindOfWork(const RecordedActor& actor) {
  if (actor.phase == "boxing") return StepPartKind::kCommunication;
  return actor.phase == "data" ? StepPartKind::kData : StepPartKind::kCompute;
}

std::string Name(StepPartKind kind) {
  switch (kind) {
    case StepPartKind::kCompute: return "compute";
    case StepPartKind::kCommunication: return "packing and combining";
    case StepPartKind::kData: return "reading data";
    case StepPartKind::kUnderWay: return "waits for tokens under way";
    case StepPartKind::kBubble: return "bubble of the pipeline";
    case StepPartKind::kLateSender: return "waits for late ranks";
    case StepPartKind::kOwnInput: return "waits for input of the own rank";
    case StepPartKind::kCredit: return "waits for free slots";
    case StepPartKind::kBetweenActs: return "between acts";
  }
  return "";
}

std::vector<StepPart> FindStepParts(const RecordedRun& run) {
  Window window(run.times);
  const Passes passes(run);
  int64_t num_queues = 0;
  for (const RecordedRank& rank : run.ranks) {
    AddRank(run, passes, rank, &window);
    num_queues += rank.num_queues;
  }
  Times sums = window.sums();
  // Queues that do nothing at the end of the window wait for no event that the trace has.
  int64_t known = 0;
  for (const int64_t sum : sums) known += sum;
  const int64_t all = window.ns() * num_queues;
  sums[static_cast<size_t>(StepPartKind::kBetweenActs)] += std::max<int64_t>(0, all - known);
  std::vector<StepPart> parts;
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    const double share = static_cast<double>(sums[kind]) /
                         static_cast<double>(std::max<int64_t>(1, std::max(all, known)));
    const double step_ns =
        static_cast<double>(window.ns()) / static_cast<double>(window.num_steps());
    parts.push_back({static_cast<StepPartKind>(kind), share, share * step_ns});
  }
  return parts;
}

}  // namespace weir::trace
