#include "tools/trace/critical_path.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace weir::trace {
namespace {

// A PathWalk walks back and adds up.
class PathWalk {
 public:
  explicit PathWalk(const RecordedRun& run) : run_(run) {}

  // Adds the path of these steps.
  void Add(int64_t first_step, int64_t last_step) {
    const int64_t end = run_.TimeOf(last_step).end;
    const RecordedAct* act = LastBefore(end);
    if (act == nullptr) return;
    const size_t added = segments_.size();
    num_steps_ += last_step - first_step + 1;
    begin_ = run_.TimeOf(first_step).begin;
    at_ = act->end;
    while (act != nullptr && at_ > begin_) act = Before(act);
    if (at_ > begin_) between_ += Take(begin_, {PathSegment::Kind::kBetweenActs});
    std::reverse(segments_.begin() + static_cast<std::ptrdiff_t>(added), segments_.end());
  }

  // Returns the sum of what was added.
  CriticalPath Sum() const {
    CriticalPath path;
    const double steps = static_cast<double>(std::max<int64_t>(1, num_steps_));
    double total = between_;
    for (const auto& [key, sum] : acts_) total += sum.ns;
    for (const auto& [key, sum] : edges_) total += sum.ns;
    path.step_ns = total / steps;
    total = std::max(total, 1.0);
    path.between_acts = between_ / total;
    for (const auto& [key, sum] : acts_) {
      const auto& [rank, function, phase] = key;
      path.acts.push_back({rank, function, phase, sum.ns / total, sum.ns / steps,
                           static_cast<double>(sum.acts) / steps, sum.serves_reports});
      path.phases[phase] += sum.ns / total;
      path.ranks[rank] += sum.ns / total;
    }
    for (const auto& [key, sum] : edges_) {
      const auto& [name, from, to, kind] = key;
      path.edges.push_back({name, from, to, kind, sum.ns / total, sum.ns / steps,
                            static_cast<double>(sum.times) / steps, sum.serves_reports});
      path.in_transfer += sum.ns / total;
    }
    const auto more = [](const auto& a, const auto& b) { return a.share > b.share; };
    std::stable_sort(path.acts.begin(), path.acts.end(), more);
    std::stable_sort(path.edges.begin(), path.edges.end(), more);
    path.segments = segments_;
    return path;
  }

 private:
  struct ActSum {
    double ns = 0;
    int64_t acts = 0;
    bool serves_reports = true;
  };
  struct EdgeSum {
    double ns = 0;
    int64_t times = 0;
    bool serves_reports = true;
  };

  // Returns the time from `from` until at_, as far as it lies in the steps, and moves to `from`.
  double Take(int64_t from) {
    from = std::min(at_, std::max(from, begin_));
    const double ns = static_cast<double>(at_ - from);
    at_ = from;
    return ns;
  }
  // The same, and adds a segment with these facts.
  double Take(int64_t from, PathSegment segment) {
    segment.end = at_;
    const double ns = Take(from);
    segment.begin = at_;
    if (segment.begin < segment.end) segments_.push_back(segment);
    return ns;
  }
  PathSegment SegmentOf(PathSegment::Kind kind, const RecordedAct& act) const {
    const RecordedRankId rank = run_.actors[act.actor].rank_index;
    PathSegment segment{kind};
    segment.rank_index = rank;
    segment.act = static_cast<int32_t>(&act - run_.ranks[rank].acts.data());
    return segment;
  }

  // Adds the act, and the time between the act and its cause; returns the cause.
  const RecordedAct* Before(const RecordedAct* act) {
    const RecordedActor& actor = run_.actors[act->actor];
    const RecordedRank& rank = run_.ranks[actor.rank_index];
    const RecordedAct* previous = act->previous >= 0 ? &rank.acts[act->previous] : nullptr;
    ActSum& sum = acts_[{rank.rank, actor.function, actor.phase}];
    sum.ns += Take(previous != nullptr ? std::max(act->start, previous->end) : act->start,
                   SegmentOf(PathSegment::Kind::kAct, *act));
    ++sum.acts;
    if (actor.ends_step) sum.serves_reports = false;
    if (at_ <= begin_) return nullptr;
    const RecordedAct* cause = run_.Cause(*act);
    const PathSegment between = SegmentOf(PathSegment::Kind::kBetweenActs, *act);
    if (const RecordedAct* room = MadeRoom(rank, *act, cause != nullptr)) {
      between_ += Take(room->end, between);
      return room;
    }
    if (cause != nullptr && IsBefore(*cause, *act)) {
      AddWay(*act, *cause);
      return cause;
    }
    if (const RecordedRank::RunBegin* run = RunBegin(rank, *act)) {
      const int64_t run_begin = RunBeginOfAll(act->step, run->at);
      between_ += Take(run_begin, between);
      previous = LastBefore(run_begin);
      if (previous != nullptr) rest_ += Take(previous->end);
      return previous;
    }
    if (previous != nullptr) between_ += Take(previous->end, between);
    return previous;
  }

  // Two acts of one rank may have begun together. The act that ended first then counts as the cause
  // of the other, so that no walk goes in a circle.
  bool IsBefore(const RecordedAct& cause, const RecordedAct& act) const {
    if (cause.start != act.start) return cause.start < act.start;
    return run_.actors[cause.actor].rank_index == run_.actors[act.actor].rank_index &&
           &cause < &act;
  }

  // Returns the act of the rank that ended last before `act` began, if `act` had what it waited for
  // and its queue was free before that end. Null on a device with a depth of one act.
  const RecordedAct* MadeRoom(const RecordedRank& rank, const RecordedAct& act,
                              bool has_cause) const {
    if (!rank.takes_ahead()) return nullptr;
    int64_t free_since = std::numeric_limits<int64_t>::min();
    if (const RecordedRank::RunBegin* run = RunBegin(rank, act)) {
      free_since = run->at;
    } else if (act.previous >= 0) {
      free_since = rank.acts[act.previous].end;
    }
    if (has_cause) free_since = std::max(free_since, act.ready);
    auto at = std::upper_bound(rank.acts.data(), &act, act.start,
                               [](int64_t t, const RecordedAct& other) { return t < other.end; });
    if (at == rank.acts.data()) return nullptr;
    --at;
    return at->end > free_since ? at : nullptr;
  }

  void AddWay(const RecordedAct& act, const RecordedAct& cause) {
    const RecordedRegister& r = run_.registers[act.waited_register];
    if (!r.crosses_ranks) {
      between_ += Take(cause.end, SegmentOf(PathSegment::Kind::kBetweenActs, act));
      return;
    }
    PathSegment way = SegmentOf(act.wait == RecordedAct::Wait::kInput ? PathSegment::Kind::kToken
                                                                      : PathSegment::Kind::kSlot,
                                act);
    way.register_index = act.waited_register;
    way.sender = run_.actors[cause.actor].rank_index;
    const double ns = Take(cause.end, way);
    const bool token = act.wait == RecordedAct::Wait::kInput;
    RankId from = run_.SenderOf(r), to = run_.ReceiverOf(r);
    if (!token) std::swap(from, to);
    const auto kind = token ? PathEdge::Kind::kToken : PathEdge::Kind::kSlot;
    EdgeSum& sum = edges_[{r.name, from, to, kind}];
    sum.ns += ns;
    ++sum.times;
    if (run_.actors[act.actor].ends_step) sum.serves_reports = false;
  }

  // Returns the begin of the run if the act is the first of its queue there.
  static const RecordedRank::RunBegin* RunBegin(const RecordedRank& rank, const RecordedAct& act) {
    const int32_t place = static_cast<int32_t>(&act - rank.acts.data());
    auto at =
        std::upper_bound(rank.runs.begin(), rank.runs.end(), place,
                         [](int32_t a, const RecordedRank::RunBegin& run) { return a < run.act; });
    if (at == rank.runs.begin()) return nullptr;
    --at;
    return act.previous < at->act ? &*at : nullptr;
  }
  // Returns the begin of the run of the step, over all ranks; `own` if that run began before the
  // acts that are kept.
  int64_t RunBeginOfAll(int64_t step, int64_t own) const {
    for (int64_t s = std::min(step, run_.last_step); s >= run_.first_step; --s) {
      if (run_.TimeOf(s).place == StepTime::Place::kFirstOfRun)
        return std::min(own, run_.TimeOf(s).begin);
    }
    return own;
  }
  const RecordedAct* LastBefore(int64_t ns) const {
    const RecordedAct* last = nullptr;
    for (const RecordedRank& rank : run_.ranks) {
      auto at = std::upper_bound(rank.acts.begin(), rank.acts.end(), ns,
                                 [](int64_t t, const RecordedAct& act) { return t < act.end; });
      if (at == rank.acts.begin()) continue;
      if (last == nullptr || std::prev(at)->end > last->end) last = &*std::prev(at);
    }
    return last;
  }

  const RecordedRun& run_;
  int64_t num_steps_ = 0;
  int64_t begin_ = 0;
  int64_t at_ = 0;  // what is later has been added
  double between_ = 0, rest_ = 0;
  std::vector<PathSegment> segments_;
  std::map<std::tuple<RankId, std::string, std::string>, ActSum> acts_;  // by rank, function, phase
  std::map<std::tuple<std::string, RankId, RankId, PathEdge::Kind>, EdgeSum> edges_;
};

}  // namespace

CriticalPath FindCriticalPath(const RecordedRun& run, int64_t first_step, int64_t last_step,
                              const std::vector<int64_t>& left_out) {
  PathWalk walk(run);
  int64_t next = first_step;  // the first step that is neither added nor left out
  for (const int64_t step : left_out) {
    if (step > next) walk.Add(next, step - 1);
    next = step + 1;
  }
  if (next <= last_step) walk.Add(next, last_step);
  CriticalPath path = walk.Sum();
  path.first_step = first_step;
  path.last_step = last_step;
  path.left_out = left_out;
  return path;
}

}  // namespace weir::trace
