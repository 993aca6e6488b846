#include "compiler/rates/rhythm.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/rates/difference_system.h"

namespace weir::compiler {
namespace {

constexpr int64_t kSumMaxNs = int64_t{1} << 56;
constexpr size_t kGroupSmall = 8;  // most groups are the two ends of an exchange

// Actors that hand each other tokens chunk by chunk, with the waits among these actors.
struct ChunkGroup {
  std::vector<ActorId> actors;  // ascending
  std::vector<Wait> waits;
};

std::vector<ChunkGroup> ChunkGroups(const TimedGraph& graph) {
  IdVector<ActorId, ActorId> parent;
  parent.reserve(graph.actors.size());
  for (ActorId a : graph.actors.ids()) parent.push_back(a);
  const auto find = [&](ActorId actor) {
    while (parent[actor] != actor) actor = parent[actor] = parent[parent[actor]];
    return actor;
  };
  std::vector<Wait> waits;
  for (const Wait& wait : AllWaits(graph)) {
    const int64_t chunks = graph.actors[wait.waiter].chunks;
    if (chunks == 1 || chunks != graph.actors[wait.other].chunks) continue;
    if (wait.waiter_port.period % chunks == 0 && wait.other_port.period % chunks == 0) continue;
    parent[find(wait.waiter)] = find(wait.other);
    waits.push_back(wait);
  }
  std::map<ActorId, ChunkGroup> groups;
  for (ActorId a : graph.actors.ids()) {
    if (graph.actors[a].chunks > 1) groups[find(a)].actors.push_back(a);
  }
  for (const Wait& wait : waits) groups[find(wait.waiter)].waits.push_back(wait);
  std::vector<ChunkGroup> result;
  for (auto& [first, group] : groups) result.push_back(std::move(group));
  return result;
}

// Returns whether some times keep all of a few differences.
bool CanBeKept(size_t num_nodes, const std::vector<Difference>& arcs) {
  std::array<int64_t, kGroupSmall> times = {};
  for (size_t round = 0; round <= num_nodes; ++round) {
    bool kept = true;
    for (const Difference& arc : arcs) {
      if (times[arc.from] + arc.weight <= times[arc.to]) continue;
      times[arc.to] = times[arc.from] + arc.weight;
      kept = false;
    }
    if (kept) return true;
  }
  return false;
}

// Returns whether chunks can follow each other at `chunk_stride_ns` for ever.
bool Follows(const TimedGraph& graph, const ChunkGroup& group, int64_t chunk_stride_ns,
             Pace* pace) {
  for (ActorId actor : group.actors) {
    const TimedGraph::Actor& a = graph.actors[actor];
    pace->actors[actor] = {0, chunk_stride_ns * a.chunks, chunk_stride_ns, a.time_ns};
  }
  const auto node = [&](ActorId actor) {
    const auto at = std::lower_bound(group.actors.begin(), group.actors.end(), actor);
    return static_cast<int>(at - group.actors.begin());
  };
  std::vector<Difference> arcs;
  arcs.reserve(group.waits.size());
  for (const Wait& wait : group.waits) {
    const int64_t weight = WeightOf(graph, *pace, wait);
    if (weight != kNoWeight) arcs.push_back({node(wait.other), node(wait.waiter), weight});
  }
  const size_t size = group.actors.size();
  return size > kGroupSmall ? DifferenceSystem(static_cast<int>(size), std::move(arcs)).Solve()
                            : CanBeKept(size, arcs);
}

int64_t ChunkTime(const TimedGraph& graph, const ChunkGroup& group, Pace* pace) {
  int64_t least = 1, most = 0;
  for (ActorId actor : group.actors) {
    least = std::max(least, graph.actors[actor].time_ns);
    most += graph.actors[actor].time_ns;
  }
  for (const Wait& wait : group.waits) most += wait.latency_ns;
  if (Follows(graph, group, least, pace) || !Follows(graph, group, most, pace)) return least;
  while (least + 1 < most) {
    const int64_t middle = least + (most - least) / 2;
    (Follows(graph, group, middle, pace) ? most : least) = middle;
  }
  return most;
}

// Returns the difference that a need within one iteration sets between the starts of two actors.
int64_t BaseOf(const TimedGraph& graph, const Pace& pace, const Wait& wait, const Need& need) {
  const auto offset = [&](ActorId actor, int64_t act) {
    return pace.actors[actor].OffsetOf(act, graph.actors[actor].chunks);
  };
  const int64_t delay =
      wait.latency_ns + (wait.kind == Wait::Kind::kJoint ? 0 : graph.actors[wait.other].time_ns);
  return offset(wait.other, need.other_act) + delay - offset(wait.waiter, need.act);
}

int64_t StrideAt(const Rhythm& rhythm, ActorId actor, int64_t micro_batch_ns) {
  const int64_t own = rhythm.micro_batches_of[actor];
  return own > 1 ? micro_batch_ns * rhythm.micro_batches / own : 0;
}

}  // namespace

absl::StatusOr<Rhythm> FindRhythm(const TimedGraph& graph) {
  Rhythm rhythm;
  double sum = 0;
  for (const TimedGraph::Actor& actor : graph.actors) {
    rhythm.micro_batches_of.push_back(actor.acts / actor.chunks);
    rhythm.micro_batches = std::max(rhythm.micro_batches, rhythm.micro_batches_of.back());
    sum += static_cast<double>(actor.time_ns) * static_cast<double>(actor.chunks);
  }
  for (const TimedGraph::Register& reg : graph.registers)
    sum += 2.0 * static_cast<double>(reg.latency_ns) * static_cast<double>(reg.consumers.size());
  int64_t granule = 1;
  for (const int64_t own : rhythm.micro_batches_of) {
    const int64_t part = own / std::gcd(own, rhythm.micro_batches);
    granule = granule / std::gcd(granule, part) * part;
    if (granule > kCountMax)
      return absl::InternalError(
          "timed graph: numbers of acts that have too few factors in common");
  }
  rhythm.granule_ns = granule;
  if ((sum + static_cast<double>(granule)) * static_cast<double>(rhythm.micro_batches) >
      static_cast<double>(kSumMaxNs)) {
    return absl::InternalError(absl::StrCat("timed graph: acts of ", sum, " ns in all, ",
                                            rhythm.micro_batches, " times an iteration"));
  }
  rhythm.chunk_stride_ns.assign(graph.actors.size(), 0);
  Pace pace;
  pace.actors.resize(graph.actors.size());
  for (const ChunkGroup& group : ChunkGroups(graph)) {
    const int64_t chunk_stride_ns = ChunkTime(graph, group, &pace);
    for (ActorId actor : group.actors) rhythm.chunk_stride_ns[actor] = chunk_stride_ns;
  }
  int64_t most = 0;
  for (ActorId a : graph.actors.ids()) {
    const TimedGraph::Actor& actor = graph.actors[a];
    const int64_t all = (actor.chunks - 1) * rhythm.chunk_stride_ns[a] + actor.time_ns;
    most += all;
    if (rhythm.micro_batches_of[a] > 1 || rhythm.IsFlat()) {
      // all <= stride = period * micro_batches / micro_batches_of
      rhythm.least_ns =
          std::max(rhythm.least_ns, (all * rhythm.micro_batches_of[a] + rhythm.micro_batches - 1) /
                                        rhythm.micro_batches);
    }
  }
  for (const TimedGraph::Register& reg : graph.registers)
    most += 2 * reg.latency_ns * static_cast<int64_t>(reg.consumers.size());
  rhythm.least_ns = rhythm.Round(rhythm.least_ns);
  rhythm.most_ns = rhythm.Round(std::max(most, rhythm.least_ns));
  return rhythm;
}

Pace PaceAt(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns,
            int64_t iteration_ns) {
  Pace pace;
  pace.micro_batch_ns = micro_batch_ns;
  pace.iteration_ns = iteration_ns;
  pace.actors.reserve(graph.actors.size());
  for (ActorId a : graph.actors.ids()) {
    pace.actors.push_back({0, StrideAt(rhythm, a, micro_batch_ns), rhythm.chunk_stride_ns[a],
                           graph.actors[a].time_ns});
  }
  return pace;
}

Pace PaceAt(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns) {
  return PaceAt(graph, rhythm, micro_batch_ns, rhythm.IsFlat() ? micro_batch_ns : 0);
}

void MovePace(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns,
              const std::vector<Wait>& waits, Pace* pace) {
  pace->micro_batch_ns = micro_batch_ns;
  pace->iteration_ns = rhythm.IsFlat() ? micro_batch_ns : 0;
  for (const Wait& wait : waits) {
    for (ActorId actor : {wait.waiter, wait.other})
      pace->actors[actor].micro_batch_stride_ns = StrideAt(rhythm, actor, micro_batch_ns);
  }
}

int64_t WeightOf(const TimedGraph& graph, const Pace& pace, const Wait& wait) {
  int64_t weight = kNoWeight;
  ForEachNeed(graph, wait, [&](const Need& need) {
    int64_t iteration_ns = pace.iteration_ns;
    if (iteration_ns == 0) {
      if (need.iterations < 0) return;
      // A need of a later iteration, with iterations far apart, counts as if iterations followed
      // each other at once.
      const TimedGraph::Actor& other = graph.actors[wait.other];
      iteration_ns = other.acts / other.chunks *
                     std::max(pace.actors[wait.other].micro_batch_stride_ns,
                              pace.actors[wait.other].chunk_stride_ns);
    }
    weight = std::max(weight, BaseOf(graph, pace, wait, need) + need.iterations * iteration_ns);
  });
  return weight;
}

void AppendWeightLines(const TimedGraph& graph, const Pace& pace, const Wait& wait,
                       std::vector<WeightLine>* lines) {
  ForEachNeed(graph, wait, [&](const Need& need) {
    lines->push_back({BaseOf(graph, pace, wait, need), need.iterations});
  });
}

}  // namespace weir::compiler
