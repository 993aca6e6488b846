#include "tools/trace/step_paths.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "tools/trace/report_text.h"

namespace weir::trace {
namespace {

using Key = std::pair<StepPartKind, std::string>;

const RecordedActor& ActorOf(const RecordedRun& run, const PathSegment& segment) {
  return run.actors[run.ranks[segment.rank_index].acts[segment.act].actor];
}

std::string NameOf(const RecordedRun& run, const PathSegment& segment) {
  switch (segment.kind) {
    case PathSegment::Kind::kAct: return LayerFamily(ActorOf(run, segment).function);
    case PathSegment::Kind::kToken:
    case PathSegment::Kind::kSlot: return LayerFamily(run.registers[segment.register_index].family);
    case PathSegment::Kind::kBetweenActs: break;
  }
  return "";
}

// Returns the places of the steps that have a path of their own, ascending.
std::set<size_t> ChosenSteps(const StepTimes& times) {
  std::set<size_t> places;
  const std::vector<size_t> outliers = times.Outliers();
  places.insert(outliers.begin(), outliers.end());
  const size_t count = times.steps.size();
  for (size_t i = count - std::min(count, kStepPathsMax); i < count; ++i) places.insert(i);
  return places;
}

}  // namespace

std::string PathCauseName(StepPartKind cause) {
  switch (cause) {
    case StepPartKind::kUnderWay: return "token under way";
    case StepPartKind::kCredit: return "slot on its way back";
    default: return Name(cause);
  }
}

StepPartKind CauseOf(const RecordedRun& run, const PathSegment& segment) {
  switch (segment.kind) {
    case PathSegment::Kind::kAct: return KindOfWork(ActorOf(run, segment));
    case PathSegment::Kind::kToken: return StepPartKind::kUnderWay;
    case PathSegment::Kind::kSlot: return StepPartKind::kCredit;
    case PathSegment::Kind::kBetweenActs: break;
  }
  return StepPartKind::kBetweenActs;
}

std::vector<PathGroup> GroupSegments(const RecordedRun& run,
                                     const std::vector<PathSegment>& segments) {
  std::map<Key, PathGroup> groups;
  std::map<Key, std::set<RankId>> ranks;
  int64_t total = 0;
  for (const PathSegment& segment : segments) {
    const Key key = {CauseOf(run, segment), NameOf(run, segment)};
    PathGroup& group = groups[key];
    const int64_t ns = segment.end - segment.begin;
    total += ns;
    group.ns += ns;
    ++group.times;
    if (ns > group.longest.end - group.longest.begin) group.longest = segment;
    if (segment.rank_index.has_value()) ranks[key].insert(run.ranks[segment.rank_index].rank);
  }
  std::vector<PathGroup> sorted;
  for (auto& [key, group] : groups) {
    group.cause = key.first;
    group.name = key.second;
    group.ranks.assign(ranks[key].begin(), ranks[key].end());
    group.share = static_cast<double>(group.ns) / static_cast<double>(std::max<int64_t>(1, total));
    sorted.push_back(std::move(group));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const PathGroup& a, const PathGroup& b) { return a.ns > b.ns; });
  return sorted;
}

std::vector<NamedSegment> NameSegments(const RecordedRun& run,
                                       const std::vector<PathSegment>& segments) {
  std::vector<NamedSegment> named;
  for (const PathSegment& segment : segments) {
    NamedSegment& to = named.emplace_back();
    to.begin = segment.begin;
    to.end = segment.end;
    to.cause = CauseOf(run, segment);
    if (segment.register_index.has_value()) {
      to.name = run.registers[segment.register_index].name;
    } else if (segment.rank_index.has_value()) {
      to.name = ActorOf(run, segment).function;
    }
    if (segment.rank_index.has_value()) to.rank = run.ranks[segment.rank_index].rank;
    if (!segment.sender.has_value()) continue;
    to.sender = run.ranks[segment.sender].rank;
    // A rank that stands for its class also stands for the rank at the other end.
    if (to.sender == to.rank) to.sender = run.registers[segment.register_index].other_rank;
  }
  return named;
}

StepPaths FindStepPaths(const RecordedRun& run) {
  StepPaths paths;
  const int64_t median = run.times.MedianNs();
  int64_t nearest = -1;
  for (const size_t place : ChosenSteps(run.times)) {
    const StepTime& time = run.times.steps[place];
    StepPath& path = paths.steps.emplace_back();
    path.step = time.step;
    path.ns = time.ns();
    path.segments = FindCriticalPath(run, time.step, time.step).segments;
    path.groups = GroupSegments(run, path.segments);
    const int64_t off = std::abs(time.ns() - median);
    if (place < run.times.FirstSteady() || (nearest >= 0 && off >= nearest)) continue;
    nearest = off;
    paths.typical_step = time.step;
  }
  return paths;
}

}  // namespace weir::trace
