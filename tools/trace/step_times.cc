#include "tools/trace/step_times.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/base/plan_limits.h"
#include "runtime/base/rate_codec.h"
#include "runtime/trace/trace_names.h"
#include "tools/trace/recorded_ids.h"
#include "tools/trace/step_rule.h"

namespace weir::trace {
namespace {

std::string TextOf(const proto::PlanFacts& facts, uint32_t index) {
  return index < static_cast<uint32_t>(facts.text_size()) ? facts.text(static_cast<int>(index))
                                                          : std::string();
}

// A SeenStep holds the facts that the acts of one step show.
struct SeenStep {
  int64_t acts = 0;
  int64_t first_start = 0;
  int64_t last_end = 0;
  std::optional<int64_t> end;  // of those that may end it
};

class StepFinder {
 public:
  explicit StepFinder(const TraceReader& trace) : trace_(trace), enders_(FindStepEnders(trace)) {}

  StepTimes Find() {
    for (const auto& [track, process] : trace_.processes) {
      if (process.rank.has_value()) Look(process);
    }
    Choose();
    return std::move(times_);
  }

 private:
  void Look(const TraceProcess& process);
  int64_t ActsExpected(int64_t step) const;
  void Choose();

  const TraceReader& trace_;
  const std::map<RankId, IdVector<ActorId, char>> enders_;
  std::map<int64_t, SeenStep> steps_;
  // The begins of the session's runs, by first step, without the first run that is kept.
  std::map<int64_t, int64_t> runs_;
  StepTimes times_;
};

void StepFinder::Look(const TraceProcess& process) {
  // By name of actor: whether its acts may end a step; all may, if the plan is missing.
  std::unordered_map<std::string, bool> ends_step;
  const auto enders = enders_.find(process.rank);
  if (enders != enders_.end()) {
    const proto::PlanFacts& facts = trace_.plans.at(process.rank);
    for (const ActorId a : IdRange<ActorId>(facts.actor_size())) {
      bool& ends = ends_step[TextOf(facts, facts.actor(a.value()).name_text())];
      ends = ends || enders->second[a] != 0;
    }
  }
  // The begin of the present run, unless it is the first run that is kept.
  std::optional<int64_t> run;
  std::optional<int64_t> run_step;
  bool acted = false;
  const auto end_run = [&] {
    if (!run.has_value() || !run_step.has_value()) return;
    auto [at, added] = runs_.try_emplace(*run_step, *run);
    at->second = std::min(at->second, *run);
  };
  for (const TraceSlice& slice : process.slices) {
    if (slice.category == kTraceRest && acted) {
      end_run();
      run = slice.end;
      run_step.reset();
    }
    if (slice.category != kTraceAct) continue;
    const std::optional<int64_t> found = trace_.StepOf(slice);
    if (!found.has_value()) continue;
    const int64_t step = *found;
    run_step =
        std::min(run_step.value_or(step), step);  // an update may be a step ahead of the first
    acted = true;
    auto [at, added] = steps_.try_emplace(step, SeenStep{0, slice.begin, slice.end, std::nullopt});
    ++at->second.acts;
    at->second.last_end = std::max(at->second.last_end, slice.end);
    at->second.first_start = std::min(at->second.first_start, slice.begin);
    auto ends = ends_step.find(slice.name);
    if (ends != ends_step.end() && !ends->second) continue;
    at->second.end = std::max(at->second.end.value_or(slice.end), slice.end);
  }
  end_run();
}

// Returns a negative number if no plan tells.
int64_t StepFinder::ActsExpected(int64_t step) const {
  int64_t acts = 0;
  for (const auto& [track, process] : trace_.processes) {
    if (!process.rank.has_value()) continue;
    auto facts = trace_.plans.find(process.rank);
    if (facts == trace_.plans.end()) return -1;
    for (const proto::ActorFacts& actor : facts->second.actor()) {
      const Rate rate = FromProto(actor.rate());
      if (rate.every <= 0 || !rate.ActsInStep(step)) continue;
      acts += std::clamp<int64_t>(rate.acts_per_step, 0, plan_limits::kRecordedActsPerStepMax);
    }
  }
  return acts;
}

void StepFinder::Choose() {
  auto last = steps_.end(), first = steps_.end();
  for (auto at = steps_.end(); at != steps_.begin();) {
    --at;
    const int64_t expected = ActsExpected(at->first);
    const bool whole = expected < 0 || at->second.acts == expected;
    if (first != steps_.end() && (!whole || at->first != first->first - 1)) break;
    if (!whole) continue;
    if (first == steps_.end()) last = at;
    first = at;
  }
  if (first == steps_.end()) return;
  times_.last_ends_run = std::next(last) == steps_.end();
  int64_t begin = first->second.first_start;
  if (first != steps_.begin()) begin = std::prev(first)->second.end.value_or(begin);
  // The end of the last act so far, at which a run ends if it ends with this step.
  int64_t last_end = begin;
  for (auto at = steps_.begin(); at != first; ++at)
    last_end = std::max(last_end, at->second.last_end);
  for (auto at = first; at != std::next(last); ++at) {
    last_end = std::max(last_end, at->second.last_end);
    StepTime time{at->first, begin, at->second.end.value_or(begin), StepTime::Place::kWithinRun};
    if (auto run = runs_.find(at->first); run != runs_.end()) {
      time.begin = std::max(begin, run->second);
      time.place = StepTime::Place::kFirstOfRun;
    }
    if (runs_.count(at->first + 1) > 0 || (at == last && times_.last_ends_run)) time.end = last_end;
    time.end = std::max(time.end, time.begin);
    begin = time.end;
    times_.steps.push_back(time);
  }
}

}  // namespace

int64_t StepTimes::MedianNs() const {
  std::vector<int64_t> ns;
  for (size_t i = FirstSteady(); i < steps.size(); ++i) ns.push_back(steps[i].ns());
  const auto middle = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 2);
  std::nth_element(ns.begin(), middle, ns.end());
  return *middle;
}

std::vector<size_t> StepTimes::Outliers() const {
  const size_t num_steady = steps.size() - FirstSteady();
  if (num_steady < kStepsForOutliers) return {};
  const int64_t longest = kOutlierFactor * MedianNs();
  std::vector<size_t> outliers;
  for (size_t i = FirstSteady(); i < steps.size(); ++i) {
    if (steps[i].ns() > longest) outliers.push_back(i);
  }
  if (outliers.size() > std::max<size_t>(1, num_steady / kOutlierPart)) return {};
  return outliers;
}

int64_t StepTimes::Inside(int64_t from, int64_t to, size_t first) const {
  int64_t ns = 0;
  // Steps are in order; `at` is the first step that ends after `from`.
  auto at = std::upper_bound(
      steps.begin() + static_cast<std::ptrdiff_t>(std::min(first, steps.size())), steps.end(), from,
      [](int64_t t, const StepTime& step) { return t < step.end; });
  for (; at != steps.end() && at->begin < to; ++at)
    ns += std::max<int64_t>(0, std::min(to, at->end) - std::max(from, at->begin));
  return ns;
}

StepTimes FindStepTimes(const TraceReader& trace) { return StepFinder(trace).Find(); }

std::map<RankId, IdVector<ActorId, char>> FindStepEnders(const TraceReader& trace) {
  IdVector<RecordedActorId, StepActor> actors;
  std::map<EdgeId, RecordedRegisterId> register_of_edge;
  std::map<EdgeId, int> ends_of_edge;
  int32_t num_registers = 0;
  for (const auto& [rank, facts] : trace.plans) {
    IdVector<RegisterId, RecordedRegisterId> register_of;
    for (const proto::RegisterFacts& r : facts.registers()) {
      RecordedRegisterId id(num_registers);
      if (r.crosses_ranks()) {
        id = register_of_edge.try_emplace(EdgeId(r.edge()), id).first->second;
        // Nobody stands for the other end of a register that is on time; it serves reports.
        ends_of_edge[EdgeId(r.edge())] += r.on_time() ? 2 : 1;
      }
      if (id == RecordedRegisterId(num_registers)) ++num_registers;
      register_of.push_back(id);
    }
    const auto add = [&register_of](
                         const google::protobuf::RepeatedPtrField<proto::PortFacts>& ports,
                         std::vector<RecordedRegisterId>* to) {
      for (const proto::PortFacts& port : ports) {
        const RegisterId id(port.register_id());
        if (register_of.Has(id)) to->push_back(register_of[id]);
      }
    };
    for (const proto::ActorFacts& from : facts.actor()) {
      StepActor& actor = actors.emplace_back();
      actor.kind = StepKindOf(TextOf(facts, from.phase_text()));
      add(from.input(), &actor.reads);
      add(from.output(), &actor.writes);
    }
  }
  // `elsewhere` stands for the work of ranks that the trace lacks: it reads the tokens that go to
  // them.
  StepActor& elsewhere = actors.emplace_back();
  for (const auto& [edge, ends] : ends_of_edge) {
    if (ends == 1) elsewhere.reads.push_back(register_of_edge.at(edge));
  }
  const IdVector<RecordedActorId, char> ends = ActorsThatEndSteps(actors, num_registers);
  std::map<RankId, IdVector<ActorId, char>> by_rank;
  auto at = ends.begin();
  for (const auto& [rank, facts] : trace.plans) {
    by_rank[rank].assign(at, at + facts.actor_size());
    at += facts.actor_size();
  }
  return by_rank;
}

}  // namespace weir::trace
