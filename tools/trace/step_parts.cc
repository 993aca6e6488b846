#include "tools/trace/step_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>

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

// Divides the time in which a queue waited for `act` from `from` on.
void AddWait(const RecordedRun& run, const RecordedAct& act, int64_t from, Window* window) {
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
      window->Add(StepPartKind::kLateSender, from, sent);
      window->Add(StepPartKind::kUnderWay, sent, ready);
      break;
    }
  }
  window->Add(StepPartKind::kBetweenActs, ready, act.start);
}

void AddRank(const RecordedRun& run, const RecordedRank& rank, Window* window) {
  for (const RecordedAct& act : rank.acts) {
    AddWait(run, act, rank.FreeSince(act, window->begin()), window);
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
    case StepPartKind::kLateSender: return "waits for late ranks";
    case StepPartKind::kOwnInput: return "waits for input of the own rank";
    case StepPartKind::kCredit: return "waits for free slots";
    case StepPartKind::kBetweenActs: return "between acts";
  }
  return "";
}

std::vector<StepPart> FindStepParts(const RecordedRun& run) {
  Window window(run.times);
  int64_t num_queues = 0;
  for (const RecordedRank& rank : run.ranks) {
    AddRank(run, rank, &window);
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
