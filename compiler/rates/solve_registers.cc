#include "compiler/rates/solve_registers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/rates/bound_period.h"
#include "compiler/rates/cheapest_times.h"
#include "compiler/rates/device_order.h"
#include "compiler/rates/difference_system.h"
#include "compiler/rates/liveness.h"
#include "compiler/rates/play.h"
#include "compiler/rates/rhythm.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kTrimVisitsMax = 4'000'000;  // nodes, of all trials together
constexpr int64_t kTrialVisitsMax = 30;        // of one; those that succeed visit few
constexpr int64_t kSlotsMax = int64_t{1} << 30;

// The slots for one period, with their cost.
struct Counts {
  IdVector<RegisterId, int64_t> slots;
  int64_t bytes = 0;
  double bytes_bound = 0;
};

class Solver {
 public:
  Solver(const TimedGraph& graph, Rhythm rhythm)
      : graph_(graph), rhythm_(std::move(rhythm)), fixed_(FixedWaits(graph)) {}

  // Returns the shortest period that any slot counts reach.
  absl::StatusOr<int64_t> Shortest() const {
    const auto shortest =
        FindShortestPeriod(graph_, rhythm_, fixed_, DeviceBound(graph_, rhythm_).micro_batch_ns);
    if (!shortest) return NoRhythm();
    return shortest->micro_batch_ns;
  }

  absl::StatusOr<Counts> CountsAt(int64_t micro_batch_ns) const;

  absl::StatusOr<RegisterSolution> Finish(Counts counts, int64_t micro_batch_ns) const {
    TimedGraph solved = graph_;
    for (RegisterId r : solved.registers.ids()) solved.registers[r].slots = counts.slots[r];
    std::optional<StartTimes> times =
        FindStartTimes(solved, rhythm_, AllWaits(solved), micro_batch_ns);
    if (!times) return NoRhythm();
    return RegisterSolution{std::move(counts.slots), *std::move(times), micro_batch_ns,
                            counts.bytes, counts.bytes_bound};
  }

  const Rhythm& rhythm() const { return rhythm_; }

 private:
  // A register to be solved, in the form of a lifetime: slots >= (time(consumer) - time(producer) +
  // extra_ns) / token_ns.
  struct Lifetime {
    RegisterId reg;
    int64_t slots_min = 1;
    double token_ns = 0;            // 0: the lifetime costs nothing
    std::vector<int64_t> extra_ns;  // by consumer; kNoWeight: no constraint
  };

  static absl::Status NoRhythm() {
    return Rejected({"W0496", "the slots that are given",
                     "an even rhythm in which every micro-batch takes the same time",
                     "none, though every act gets its turn",
                     "leave more of the slots to be solved, or give more"});
  }

  int64_t SlotsMin(const TimedGraph::Register& reg) const {
    int64_t least = std::max<int64_t>({1, reg.initial_tokens, reg.producer.tokens});
    for (const TimedGraph::Port& port : reg.consumers) least = std::max(least, port.tokens);
    return least;
  }

  // Returns the most tokens that can exist, because an iteration ends before the next begins.
  double TokensMax(const TimedGraph::Register& reg) const {
    const int64_t spans = graph_.actors[reg.producer.actor].acts / reg.producer.period;
    return static_cast<double>(spans * reg.producer.tokens + reg.initial_tokens);
  }

  // Returns the time from one token of the producer to the next, in steady state.
  double TokenTime(const Pace& pace, const TimedGraph::Register& reg) const {
    const TimedGraph::Port& port = reg.producer;
    const TimedGraph::Actor& actor = graph_.actors[port.actor];
    const Timing& times = pace.actors[port.actor];
    const double tokens = static_cast<double>(port.tokens),
                 period = static_cast<double>(port.period);
    if (actor.chunks > 1 && port.period < actor.chunks)
      return static_cast<double>(times.chunk_stride_ns) * period / tokens;
    if (rhythm_.micro_batches_of[port.actor] > 1)
      return static_cast<double>(times.micro_batch_stride_ns) * period /
             static_cast<double>(actor.chunks) / tokens;
    return rhythm_.IsFlat() ? static_cast<double>(pace.iteration_ns) / tokens : 0;
  }

  Lifetime LifetimeOf(const Pace& pace, RegisterId reg) const {
    const TimedGraph::Register& r = graph_.registers[reg];
    Lifetime lifetime;
    lifetime.reg = reg;
    lifetime.slots_min = SlotsMin(r);
    lifetime.token_ns = TokenTime(pace, r);
    for (size_t c = 0; c < r.consumers.size(); ++c) {
      const int64_t weight =
          WeightOf(graph_, pace, SlotWait(graph_, reg, static_cast<int>(c), lifetime.slots_min));
      lifetime.extra_ns.push_back(
          weight == kNoWeight
              ? kNoWeight
              : weight + static_cast<int64_t>(static_cast<double>(lifetime.slots_min) *
                                              lifetime.token_ns));
    }
    return lifetime;
  }

  CheapestTimes Cheapest(const std::vector<Lifetime>& lifetimes,
                         std::vector<Difference> differences) const;
  std::optional<int64_t> SlotsFor(const Pace& pace, const std::vector<int64_t>& times,
                                  RegisterId reg) const;
  void Trim(const Pace& pace, std::vector<Difference> differences,
            const std::vector<int64_t>& times, Counts* counts) const;
  double Bound(const std::vector<Lifetime>& lifetimes, const std::vector<int64_t>& times) const;

  const TimedGraph& graph_;
  const Rhythm rhythm_;
  const std::vector<Wait> fixed_;
};

// Finds start times with the least sum of register lifetimes, weighted by bytes.
CheapestTimes Solver::Cheapest(const std::vector<Lifetime>& lifetimes,
                               std::vector<Difference> differences) const {
  // Costs are whole numbers: bytes per time, with the precision that 2^61 allows.
  double largest = 0, sum = 0;
  bool even = true;
  double token_ns = 0;
  for (const Lifetime& lifetime : lifetimes) {
    if (lifetime.token_ns <= 0) continue;
    if (token_ns == 0) token_ns = lifetime.token_ns;
    even &= lifetime.token_ns == token_ns;
    const double cost =
        static_cast<double>(graph_.registers[lifetime.reg].bytes) / lifetime.token_ns;
    largest = std::max(largest, cost);
    sum += cost;
  }
  const double scale = even ? token_ns : (sum > 0 ? std::min(0x1p40 / largest, 0x1p60 / sum) : 1);
  std::vector<Charge> charges;
  int num_nodes = static_cast<int>(graph_.actors.size());
  for (const Lifetime& lifetime : lifetimes) {
    const TimedGraph::Register& reg = graph_.registers[lifetime.reg];
    const int64_t consumers = std::count_if(lifetime.extra_ns.begin(), lifetime.extra_ns.end(),
                                            [](int64_t ns) { return ns != kNoWeight; });
    if (lifetime.token_ns <= 0 || reg.bytes == 0 || consumers == 0) continue;
    const int64_t cost = std::llround(static_cast<double>(reg.bytes) / lifetime.token_ns * scale);
    const int64_t free =
        static_cast<int64_t>(static_cast<double>(lifetime.slots_min) * lifetime.token_ns);
    const int last_release = consumers > 1 ? num_nodes++ : -1;
    for (size_t c = 0; c < reg.consumers.size(); ++c) {
      if (lifetime.extra_ns[c] == kNoWeight) continue;
      const int producer = reg.producer.actor.value(), consumer = reg.consumers[c].actor.value();
      if (consumers == 1) {
        charges.push_back({producer, consumer, free - lifetime.extra_ns[c], cost});
      } else {
        differences.push_back({consumer, last_release, lifetime.extra_ns[c]});
      }
    }
    if (consumers > 1) charges.push_back({reg.producer.actor.value(), last_release, free, cost});
  }
  return CheapestTimes(num_nodes, differences, charges);
}

// Returns the fewest slots with which acts can start at `times`.
std::optional<int64_t> Solver::SlotsFor(const Pace& pace, const std::vector<int64_t>& times,
                                        RegisterId reg) const {
  const TimedGraph::Register& r = graph_.registers[reg];
  int64_t slots = SlotsMin(r);
  for (size_t c = 0; c < r.consumers.size(); ++c) {
    const int64_t room = times[r.producer.actor.value()] - times[r.consumers[c].actor.value()];
    const auto fits = [&](int64_t n) {
      const int64_t weight = WeightOf(graph_, pace, SlotWait(graph_, reg, static_cast<int>(c), n));
      return weight == kNoWeight || weight <= room;
    };
    if (fits(slots)) continue;
    int64_t less = slots, more = slots + 1;
    for (; !fits(more); more = more + 2 * (more - slots)) {
      less = more;
      if (more > kSlotsMax) return std::nullopt;
    }
    while (less + 1 < more) {
      const int64_t middle = less + (more - less) / 2;
      (fits(middle) ? more : less) = middle;
    }
    slots = more;
  }
  return slots;
}

// Removes one slot at a time, the largest registers first, as long as start times remain.
void Solver::Trim(const Pace& pace, std::vector<Difference> differences,
                  const std::vector<int64_t>& times, Counts* counts) const {
  std::vector<RegisterId> order;
  IdVector<RegisterId, std::vector<std::pair<int, int64_t>>> arcs(
      graph_.registers.size());  // index, consumer
  for (RegisterId r : graph_.registers.ids()) {
    const TimedGraph::Register& reg = graph_.registers[r];
    if (reg.slots > 0) continue;
    for (size_t c = 0; c < reg.consumers.size(); ++c) {
      const int64_t weight =
          WeightOf(graph_, pace, SlotWait(graph_, r, static_cast<int>(c), counts->slots[r]));
      arcs[r].emplace_back(static_cast<int>(differences.size()), static_cast<int64_t>(c));
      // A weight without a constraint must still be an arc, because fewer slots may set a
      // constraint.
      differences.push_back({reg.consumers[c].actor.value(), reg.producer.actor.value(),
                             weight == kNoWeight ? -kTimeMaxNs : weight});
    }
    if (counts->slots[r] > SlotsMin(reg) && reg.bytes > 0) order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](RegisterId a, RegisterId b) {
    return graph_.registers[a].bytes > graph_.registers[b].bytes;
  });
  DifferenceSystem system(static_cast<int>(graph_.actors.size()), std::move(differences));
  if (order.empty() || !system.SetTimes(times)) return;
  for (RegisterId r : order) {
    while (counts->slots[r] > SlotsMin(graph_.registers[r]) &&
           system.num_visits() < kTrimVisitsMax) {
      std::vector<std::pair<int, int64_t>> changes;
      for (const auto& [arc, consumer] : arcs[r]) {
        const int64_t weight = WeightOf(
            graph_, pace, SlotWait(graph_, r, static_cast<int>(consumer), counts->slots[r] - 1));
        changes.emplace_back(arc, weight == kNoWeight ? -kTimeMaxNs : weight);
      }
      if (!system.Tighten(changes, kTrialVisitsMax)) break;
      --counts->slots[r];
    }
  }
}

double Solver::Bound(const std::vector<Lifetime>& lifetimes,
                     const std::vector<int64_t>& times) const {
  double bound = 0;
  for (const TimedGraph::Register& reg : graph_.registers)
    bound += static_cast<double>(reg.slots) * static_cast<double>(reg.bytes);
  for (const Lifetime& lifetime : lifetimes) {
    const TimedGraph::Register& reg = graph_.registers[lifetime.reg];
    double slots = static_cast<double>(lifetime.slots_min);
    for (size_t c = 0; c < reg.consumers.size() && lifetime.token_ns > 0; ++c) {
      if (lifetime.extra_ns[c] == kNoWeight) continue;
      const int64_t lives = times[reg.consumers[c].actor.value()] -
                            times[reg.producer.actor.value()] + lifetime.extra_ns[c];
      slots = std::max(slots, static_cast<double>(lives) / lifetime.token_ns);
    }
    if (!rhythm_.IsFlat())
      slots = std::min(slots, std::max(static_cast<double>(lifetime.slots_min), TokensMax(reg)));
    bound += slots * static_cast<double>(reg.bytes);
  }
  return bound;
}

absl::StatusOr<Counts> Solver::CountsAt(int64_t micro_batch_ns) const {
  const Pace pace = PaceAt(graph_, rhythm_, micro_batch_ns);
  std::vector<Difference> differences;
  differences.reserve(fixed_.size());
  for (const Wait& wait : fixed_) {
    const int64_t weight = WeightOf(graph_, pace, wait);
    if (weight != kNoWeight)
      differences.push_back({wait.other.value(), wait.waiter.value(), weight});
  }
  std::vector<Lifetime> lifetimes;
  for (RegisterId r : graph_.registers.ids()) {
    if (graph_.registers[r].slots == 0) lifetimes.push_back(LifetimeOf(pace, r));
  }
  CheapestTimes cheapest = Cheapest(lifetimes, differences);
  if (!cheapest.Solve()) return NoRhythm();
  std::vector<int64_t> times = cheapest.times();
  Counts counts;
  counts.bytes_bound = Bound(lifetimes, times);
  const std::vector<Difference> orders = FindDeviceOrder(graph_, rhythm_, pace, differences, times);
  if (!orders.empty()) {
    differences.insert(differences.end(), orders.begin(), orders.end());
    cheapest.Add(orders);
    if (!cheapest.Solve()) return absl::InternalError("orders of devices that no times keep");
    times = cheapest.times();
  }
  for (RegisterId r : graph_.registers.ids()) {
    counts.slots.push_back(graph_.registers[r].slots);
    if (counts.slots[r] > 0) continue;
    const auto slots = SlotsFor(pace, times, r);
    if (!slots) return NoRhythm();
    counts.slots[r] = *slots;
  }
  Trim(pace, std::move(differences), times, &counts);
  for (RegisterId r : graph_.registers.ids())
    counts.bytes += counts.slots[r] * graph_.registers[r].bytes;
  return counts;
}

// Checks for a deadlock that no count of the free registers mends.
absl::Status CheckGivenSlots(TimedGraph graph, const std::string& remedy) {
  for (TimedGraph::Register& reg : graph.registers) {
    if (reg.slots > 0) continue;
    const TimedGraph::Actor& producer = graph.actors[reg.producer.actor];
    reg.slots =
        reg.slots_max > 0
            ? reg.slots_max
            : 2 * (producer.acts / reg.producer.period * reg.producer.tokens) + reg.initial_tokens;
  }
  const Liveness liveness = CheckLiveness(graph);
  return liveness.live ? absl::OkStatus() : DeadlockError(graph, liveness.deadlock, remedy);
}

absl::StatusOr<Solver> MakeSolver(const TimedGraph& graph) {
  WEIR_ASSIGN_OR_RETURN(Rhythm rhythm, FindRhythm(graph));
  return Solver(graph, std::move(rhythm));
}

absl::Status DoesNotFit(int64_t bytes_max, int64_t bytes) {
  return ErrorOf(absl::StatusCode::kResourceExhausted,
                 {"W0495", "the registers",
                  absl::StrCat("at most ", bytes_max, " bytes, the limit that is set"),
                  absl::StrCat("that the slowest rhythm takes ", bytes),
                  "raise the limit to that, or keep less between forward and backward"});
}

absl::StatusOr<RegisterSolution> Solve(const TimedGraph& graph, const SolveOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const Solver solver, MakeSolver(graph));
  WEIR_ASSIGN_OR_RETURN(int64_t fast, solver.Shortest());
  fast = solver.rhythm().Round(std::max(fast, options.micro_batch_ns.value_or(0)));
  WEIR_ASSIGN_OR_RETURN(Counts best, solver.CountsAt(fast));
  if (!options.bytes_max || best.bytes <= *options.bytes_max)
    return solver.Finish(std::move(best), fast);
  int64_t slow = std::max(fast, solver.rhythm().most_ns);
  WEIR_ASSIGN_OR_RETURN(best, solver.CountsAt(slow));
  if (best.bytes > *options.bytes_max) return DoesNotFit(*options.bytes_max, best.bytes);
  // Finds the least period that fits, to a thousandth.
  while (slow - fast > std::max(solver.rhythm().granule_ns, slow / 1000)) {
    const int64_t middle = solver.rhythm().Round(fast + (slow - fast) / 2);
    if (middle >= slow) break;
    WEIR_ASSIGN_OR_RETURN(Counts counts, solver.CountsAt(middle));
    if (counts.bytes > *options.bytes_max) {
      fast = middle;
    } else {
      slow = middle;
      best = std::move(counts);
    }
  }
  return solver.Finish(std::move(best), slow);
}

absl::StatusOr<std::vector<CurvePoint>> Curve(const TimedGraph& graph, int points_max) {
  WEIR_ASSIGN_OR_RETURN(const Solver solver, MakeSolver(graph));
  WEIR_ASSIGN_OR_RETURN(const int64_t fast, solver.Shortest());
  std::map<int64_t, Counts> counts;  // by period
  const auto at = [&](int64_t period) -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(counts[period], solver.CountsAt(period));
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(at(fast));
  WEIR_RETURN_IF_ERROR(at(std::max(fast, solver.rhythm().most_ns)));
  // Each new point lies between the two neighbours whose bytes differ most, at their geometric
  // mean.
  for (int i = 2; i < 3 * points_max; ++i) {
    int64_t middle = 0, most = 0;
    for (auto it = counts.begin(); std::next(it) != counts.end(); ++it) {
      const int64_t between = solver.rhythm().Round(static_cast<int64_t>(
          std::sqrt(static_cast<double>(it->first) * static_cast<double>(std::next(it)->first))));
      const int64_t gain = it->second.bytes - std::next(it)->second.bytes;
      if (gain <= most || between <= it->first || between >= std::next(it)->first) continue;
      most = gain;
      middle = between;
    }
    if (middle == 0) break;
    WEIR_RETURN_IF_ERROR(at(middle));
  }
  std::vector<CurvePoint> curve;  // from fast to slow, each with less memory
  for (auto& [period, c] : counts) {
    if (!curve.empty() && c.bytes >= curve.back().bytes) continue;
    WEIR_ASSIGN_OR_RETURN(const RegisterSolution solution, solver.Finish(c, period));
    curve.push_back({c.bytes, period, solution.times.iteration_ns});
  }
  std::reverse(curve.begin(), curve.end());
  // If there are too many points, the points that add least go.
  while (static_cast<int>(curve.size()) > std::max(points_max, 2)) {
    size_t least = 1;
    for (size_t i = 1; i + 1 < curve.size(); ++i) {
      if (curve[i + 1].bytes - curve[i - 1].bytes < curve[least + 1].bytes - curve[least - 1].bytes)
        least = i;
    }
    curve.erase(curve.begin() + static_cast<std::ptrdiff_t>(least));
  }
  return curve;
}

// Start times prove that a graph does not deadlock, so a graph is played, which takes long, only if
// it has none. Then a deadlock is the better explanation.
template <typename Result>
absl::StatusOr<Result> Explained(absl::StatusOr<Result> solved, const TimedGraph& graph,
                                 const std::string& remedy) {
  if (!solved.ok()) WEIR_RETURN_IF_ERROR(CheckGivenSlots(graph, remedy));
  return solved;
}

}  // namespace

absl::StatusOr<RegisterSolution> SolveRegisters(const TimedGraph& graph,
                                                const SolveOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckGraph(graph));
  return Explained(Solve(graph, options), graph, options.remedy);
}

absl::StatusOr<std::vector<CurvePoint>> MemoryCurve(const TimedGraph& graph, int points_max) {
  WEIR_RETURN_IF_ERROR(CheckGraph(graph));
  return Explained(Curve(graph, points_max), graph, "");
}

}  // namespace weir::compiler
