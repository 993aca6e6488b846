#include "compiler/rhythm/solve_rhythm.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/lower/check_sizes.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/play_stations.h"
#include "compiler/rhythm/stage_twins.h"
#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// The search halves the interval between the bound and the period of one slot each this many times.
constexpr int kBisections = 12;

int64_t BytesOfFullestDevice(const TimedGraph& graph, const IdVector<RegisterId, int64_t>& slots) {
  int64_t most = 0;
  for (const auto& [device, bytes] : RegisterBytes(graph, slots)) most = std::max(most, bytes);
  return most;
}

// Finds the shortest period at which the registers of no device take more than `bytes_max`.
absl::StatusOr<RegisterSolution> SolveUnder(const TimedGraph& graph, RegisterSolution best,
                                            int64_t bytes_max) {
  if (BytesOfFullestDevice(graph, best.slots) <= bytes_max) return best;
  TimedGraph least = graph;
  for (TimedGraph::Register& entry : least.registers) {
    if (entry.slots == 0) entry.slots = std::max<int64_t>(1, entry.initial_tokens);
  }
  absl::StatusOr<RegisterSolution> slowest = SolveRegisters(least, {});
  if (!slowest.ok() || BytesOfFullestDevice(graph, slowest->slots) > bytes_max) {
    const std::string found =
        slowest.ok()
            ? absl::StrCat(BytesOfFullestDevice(graph, slowest->slots), " with one slot each")
            : "less than one slot each";
    return Rejected({"W0495", "runtime.register_bytes_max",
                     "room for the registers of every device",
                     absl::StrCat(bytes_max, " bytes, where the fullest needs ", found),
                     "a larger runtime.register_bytes_max, smaller micro-batches or more devices"});
  }
  RegisterSolution fits = *std::move(slowest);
  int64_t low = best.micro_batch_ns, high = fits.micro_batch_ns;
  for (int i = 0; i < kBisections && high - low > 1; ++i) {
    SolveOptions options;
    options.micro_batch_ns = low + (high - low) / 2;
    absl::StatusOr<RegisterSolution> solution = SolveRegisters(graph, options);
    if (solution.ok() && BytesOfFullestDevice(graph, solution->slots) <= bytes_max) {
      fits = *std::move(solution);
      high = *options.micro_batch_ns;
    } else {
      low = *options.micro_batch_ns;
    }
  }
  return fits;
}

// Returns the settings of the job that would leave all slots to the solver.
std::string LeaveSlotsToBeSolved(const RuntimeSettings& runtime) {
  std::string text = runtime.debug_register_slots > 0 ? "runtime.debug_register_slots: 0" : "";
  if (runtime.registers != RegisterChoice::kSolved)
    absl::StrAppend(&text, text.empty() ? "" : " with ", "runtime.registers: SOLVED");
  return text;
}

}  // namespace

std::map<int, int64_t> RegisterBytes(const TimedGraph& graph,
                                     const IdVector<RegisterId, int64_t>& slots) {
  std::map<int, int64_t> bytes;
  for (RegisterId r : graph.registers.ids()) {
    const TimedGraph::Register& entry = graph.registers[r];
    bytes[graph.actors[entry.consumers[0].actor].device] += entry.bytes * slots[r];
  }
  return bytes;
}

absl::StatusOr<StationGraph> BuildStationGraph(const LogicalPlan& plan, const CostModel& costs,
                                               const RhythmOptions& options) {
  for (const StageShape& shape : plan.stages) WEIR_RETURN_IF_ERROR(CheckSizes(shape.graph));
  StationGraphBuilder builder(plan, costs);
  const std::vector<std::vector<StageTwin>> twins = FindStageTwins(plan);
  std::map<int64_t, KnownCalls> known;  // by the ranks' numbers in their stages
  TransferFactory transfers(plan.settings.runtime);
  for (int64_t stage = 0; stage < plan.places.size(); ++stage) {
    if (twins[stage].empty()) continue;  // the twin of an earlier stage
    const int64_t of_stage = plan.places.mesh(stage).num_ranks();
    const int64_t shown =
        of_stage > RhythmOptions::kRanksMany ? 1 : std::min(of_stage, options.ranks_of_stage_max);
    for (int64_t i = 0; i < shown; ++i) {
      const int64_t device = i > 0 && i + 1 == shown ? of_stage - 1 : i;
      const RankId rank = plan.places.RankAt(stage, device);
      WEIR_ASSIGN_OR_RETURN(RankGraph graph,
                            LowerToRankGraph(plan, rank, &known[device], &transfers));
      WEIR_RETURN_IF_ERROR(CheckSizes(graph));
      builder.Add(graph, twins[stage]);
    }
  }
  return builder.Finish();
}

absl::StatusOr<RegisterSolution> SolveStations(const LogicalPlan& plan, const StationGraph& graph) {
  SolveOptions options;
  options.remedy = LeaveSlotsToBeSolved(plan.settings.runtime);
  WEIR_ASSIGN_OR_RETURN(RegisterSolution solution, SolveRegisters(graph.timed, options));
  const int64_t bytes_max = plan.settings.runtime.register_bytes_max;
  if (bytes_max == 0) return solution;
  return SolveUnder(graph.timed, std::move(solution), bytes_max);
}

absl::StatusOr<JobRhythm> SolveRhythm(const LogicalPlan& plan, const CostModel& costs,
                                      const RhythmOptions& options) {
  WEIR_ASSIGN_OR_RETURN(StationGraph graph, BuildStationGraph(plan, costs, options));
  WEIR_ASSIGN_OR_RETURN(RegisterSolution solution, SolveStations(plan, graph));
  JobRhythm rhythm;
  rhythm.iteration_ns = solution.times.iteration_ns;
  rhythm.micro_batch_ns = solution.times.micro_batch_ns;
  if (plan.mode == PlanMode::kTrain && plan.schedule.num_stages > 1)
    rhythm.bubble = PlayStations(plan.schedule, graph, solution.slots).play.bubble;
  rhythm.stations.resize(plan.module.items.size());
  for (ActorId a : graph.stations.ids()) {
    const Station& station = graph.stations[a];
    std::vector<StationTime>& in_item = rhythm.stations[station.item];
    if (static_cast<int>(in_item.size()) <= station.index) in_item.resize(station.index + 1);
    in_item[station.index] = {solution.times.actors[a], 0};
    in_item[station.index].time_ns = graph.timed.actors[a].time_ns;
  }
  for (RegisterId r : graph.timed.registers.ids()) {
    const TimedGraph::Register& entry = graph.timed.registers[r];
    if (entry.slots == 0) rhythm.slots[graph.families[r]] = solution.slots[r];
    const Station& station = graph.stations[entry.producer.actor];
    StationTime& time = rhythm.stations[station.item][station.index];
    time.latency_ns = std::max(time.latency_ns, entry.latency_ns);
  }
  return rhythm;
}

}  // namespace weir::compiler
