#include "compiler/rates/bound_period.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/rates/difference_system.h"
#include "compiler/rates/solve_registers.h"

namespace weir::compiler {
namespace {

constexpr int64_t kIterationMaxNs = int64_t{1} << 56;
constexpr int kCirclesMax = 12;

// The differences of the waits that set a constraint, and the indices of these waits.
struct Asked {
  std::vector<Difference> arcs;
  std::vector<int> waits;
};
template <typename Weight>
Asked Ask(const std::vector<Wait>& waits, const Weight& weight_of) {
  Asked asked;
  asked.arcs.reserve(waits.size());
  asked.waits.reserve(waits.size());
  for (size_t w = 0; w < waits.size(); ++w) {
    const int64_t weight = weight_of(static_cast<int>(w));
    if (weight == kNoWeight) continue;
    asked.arcs.push_back({waits[w].other.value(), waits[w].waiter.value(), weight});
    asked.waits.push_back(static_cast<int>(w));
  }
  return asked;
}

// The constraints of waits as a function of the length of an iteration, at one pace of
// micro-batches.
class WeightsByIteration {
 public:
  WeightsByIteration(const TimedGraph& graph, const Pace& pace, const std::vector<Wait>& waits)
      : first_{0} {
    for (const Wait& wait : waits) {
      AppendWeightLines(graph, pace, wait, &lines_);
      first_.push_back(lines_.size());
    }
  }
  int64_t At(int wait, int64_t iteration_ns) const {
    int64_t weight = kNoWeight;
    for (size_t i = first_[wait]; i < first_[wait + 1]; ++i) {
      weight = std::max(weight, lines_[i].base_ns + lines_[i].iterations * iteration_ns);
    }
    return weight;
  }

 private:
  std::vector<WeightLine> lines_;
  std::vector<size_t> first_;  // by wait
};

// Returns the least multiple of `granule` in (from, most] for which `keeps` holds. `keeps` stays
// true from there on. Returns nothing if there is none.
std::optional<int64_t> FindLeast(int64_t from, int64_t most, int64_t granule,
                                 const std::function<bool(int64_t)>& keeps) {
  int64_t step = granule, low = from, high = from;
  do {
    if (high >= most) return std::nullopt;
    low = high;
    high = high > most - step ? most / granule * granule : high + step;
    if (high <= low) return std::nullopt;
    step = step > most / 2 ? most : 2 * step;
  } while (!keeps(high));
  while (high - low > granule) {
    const int64_t middle = low + (high - low) / granule / 2 * granule;
    (keeps(middle) ? high : low) = middle;
  }
  return high;
}

// Returns whether a circle of waits can be kept.
template <typename Weight>
bool Keeps(const std::vector<int>& circle, const Weight& weight_of) {
  __int128 sum = 0;
  for (int wait : circle) {
    const int64_t weight = weight_of(wait);
    if (weight == kNoWeight) return true;
    sum += weight;
  }
  return sum <= 0;
}

std::vector<int> CircleOf(const DifferenceSystem& system, const Asked& asked) {
  std::vector<int> circle;
  for (int arc : system.circle()) circle.push_back(asked.waits[arc]);
  return circle;
}

}  // namespace

// The busiest device is the device whose acts for one micro-batch take longest.
PeriodBound DeviceBound(const TimedGraph& graph, const Rhythm& rhythm) {
  std::map<int, std::vector<ActorId>> devices;
  PeriodBound bound;
  bound.micro_batch_ns = rhythm.least_ns;
  for (ActorId a : graph.actors.ids()) {
    if (rhythm.micro_batches_of[a] == 1 && !rhythm.IsFlat()) continue;
    const TimedGraph::Actor& actor = graph.actors[a];
    const int64_t all = (actor.chunks - 1) * rhythm.chunk_stride_ns[a] + actor.time_ns;
    const int64_t alone =
        (all * rhythm.micro_batches_of[a] + rhythm.micro_batches - 1) / rhythm.micro_batches;
    if (bound.busiest.empty() && rhythm.Round(alone) == rhythm.least_ns) bound.busiest = {a};
    if (actor.device >= 0) devices[actor.device].push_back(a);
  }
  for (const auto& [device, actors] : devices) {
    int64_t load = 0;
    for (ActorId a : actors) load += graph.actors[a].time_ns * graph.actors[a].acts;
    const int64_t period = rhythm.Round((load + rhythm.micro_batches - 1) / rhythm.micro_batches);
    if (period < bound.micro_batch_ns ||
        (period == bound.micro_batch_ns && bound.busiest.size() > 1))
      continue;
    bound.micro_batch_ns = period;
    bound.busiest = actors;
  }
  return bound;
}

std::vector<Wait> FixedWaits(const TimedGraph& graph) {
  std::vector<Wait> waits = AllWaits(graph);
  for (RegisterId r : graph.registers.ids()) {
    const TimedGraph::Register& reg = graph.registers[r];
    if (reg.slots > 0 || reg.slots_max == 0) continue;
    for (size_t c = 0; c < reg.consumers.size(); ++c) {
      waits.push_back(SlotWait(graph, r, static_cast<int>(c), reg.slots_max));
    }
  }
  return waits;
}

std::optional<ShortestPeriod> FindShortestPeriod(const TimedGraph& graph, const Rhythm& rhythm,
                                                 const std::vector<Wait>& waits, int64_t from_ns) {
  ShortestPeriod shortest;
  shortest.micro_batch_ns = rhythm.Round(from_ns);
  const int64_t most = std::max(shortest.micro_batch_ns, rhythm.most_ns);
  while (true) {
    Pace pace = PaceAt(graph, rhythm, shortest.micro_batch_ns);
    const auto weight_of = [&](int wait) { return WeightOf(graph, pace, waits[wait]); };
    const Asked asked = Ask(waits, weight_of);
    DifferenceSystem system(static_cast<int>(graph.actors.size()), asked.arcs);
    if (system.Solve()) return shortest;
    const std::vector<int> circle = CircleOf(system, asked);
    std::vector<Wait> on_circle;
    for (int wait : circle) on_circle.push_back(waits[wait]);
    const auto period =
        FindLeast(shortest.micro_batch_ns, most, rhythm.granule_ns, [&](int64_t ns) {
          MovePace(graph, rhythm, ns, on_circle, &pace);
          return Keeps(circle, weight_of);
        });
    if (!period) return std::nullopt;
    shortest = {*period, {}};
    for (int wait : circle) shortest.circle.push_back(waits[wait].waiter);
  }
}

std::optional<StartTimes> FindStartTimes(const TimedGraph& graph, const Rhythm& rhythm,
                                         const std::vector<Wait>& waits, int64_t micro_batch_ns) {
  int64_t shortest = micro_batch_ns * rhythm.micro_batches;
  for (ActorId a : graph.actors.ids()) {
    const TimedGraph::Actor& actor = graph.actors[a];
    if (rhythm.micro_batches_of[a] == 1)
      shortest = std::max(shortest, (actor.chunks - 1) * rhythm.chunk_stride_ns[a] + actor.time_ns);
  }
  const Pace pace = PaceAt(graph, rhythm, micro_batch_ns, shortest);
  const WeightsByIteration weights(graph, pace, waits);
  std::vector<int> circle;
  const auto solve = [&](int64_t iteration_ns) -> std::optional<StartTimes> {
    const Asked asked = Ask(waits, [&](int wait) { return weights.At(wait, iteration_ns); });
    DifferenceSystem system(static_cast<int>(graph.actors.size()), asked.arcs);
    if (!system.Solve()) {
      circle = CircleOf(system, asked);
      return std::nullopt;
    }
    StartTimes times = {iteration_ns, micro_batch_ns, pace.actors};
    for (ActorId a : graph.actors.ids()) times.actors[a].start_ns = system.times()[a.value()];
    return times;
  };
  // First try exactly the length that each forbidding circle needs. The search is exact and mostly
  // short.
  std::optional<StartTimes> found = solve(shortest);
  for (int i = 0; i < kCirclesMax && !found; ++i) {
    const auto longer = FindLeast(shortest, kIterationMaxNs, 1, [&](int64_t ns) {
      return Keeps(circle, [&](int wait) { return weights.At(wait, ns); });
    });
    if (!longer) return std::nullopt;
    shortest = *longer;
    found = solve(shortest);
  }
  if (found) return found;
  // Otherwise search, to a thousandth, between that length and an iteration that waits for the end
  // of the iteration before.
  int64_t longest = shortest;
  while (!(found = solve(longest))) {
    if (longest > kIterationMaxNs / 2) return std::nullopt;
    longest *= 2;
  }
  while (longest - shortest > longest / 1000) {
    const int64_t middle = shortest + (longest - shortest) / 2;
    if (auto times = solve(middle)) {
      found = std::move(times);
      longest = middle;
    } else {
      shortest = middle;
    }
  }
  return found;
}

PeriodBound BoundPeriod(const TimedGraph& graph) {
  const absl::StatusOr<Rhythm> rhythm = FindRhythm(graph);
  if (!rhythm.ok()) return {};
  PeriodBound bound = DeviceBound(graph, *rhythm);
  const auto shortest = FindShortestPeriod(graph, *rhythm, FixedWaits(graph), bound.micro_batch_ns);
  if (!shortest || shortest->circle.empty()) return bound;
  bound.micro_batch_ns = shortest->micro_batch_ns;
  bound.busiest = shortest->circle;
  bound.is_device = false;
  return bound;
}

}  // namespace weir::compiler
