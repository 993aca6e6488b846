#include "tools/sim/simulate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/session/virtual_run.h"
#include "compiler/compile.h"
#include "compiler/cost/model_flops.h"
#include "ops/defs/op_def.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/sim/act_costs.h"
#include "tools/sim/cluster_costs.h"
#include "tools/sim/cluster_map.h"
#include "tools/sim/device_costs.h"
#include "tools/sim/rank_classes.h"
#include "tools/train/job_data.h"

namespace weir::sim {
namespace {

// With more acts than this, one step is enough.
constexpr double kActsForTwoSteps = 4e6;
// Ranks whose arithmetic differs by a smaller share do the same work. Some ranks also merge
// scalars.
constexpr double kAlike = 1e-3;
// The number of acts that a trace keeps of each rank.
constexpr int64_t kTracedActsMax = 1 << 16;

// Returns the arithmetic of one rank in a step, without exchanges.
double FlopsOf(const actors::Plan& plan) {
  double total = 0;
  for (const actors::PlanActor& actor : plan.actors) {
    if (!actor.program.has_value() || actor.phase == actors::ActorPhase::kBoxing) continue;
    for (const actors::PlanCall& call : plan.programs[actor.program].calls) {
      total += WorkOf(call, actor.chunks).flops * static_cast<double>(actor.acts_per_step);
    }
  }
  return total;
}

class Simulation {
 public:
  Simulation(const compiler::LogicalPlan& logical, const proto::Cluster& cluster,
             const SimulateOptions& options)
      : logical_(&logical), cluster_(cluster), options_(options) {}

  absl::StatusOr<SimulateReport> Run() {
    WEIR_RETURN_IF_ERROR(MakePlans());
    WEIR_RETURN_IF_ERROR(MakeRun());
    const int64_t begin = clock_.NowNs();
    WEIR_RETURN_IF_ERROR(run_->RunSteps(report_.steps));
    report_.simulate_seconds += static_cast<double>(clock_.NowNs() - begin) * 1e-9;
    Tell();
    if (!options_.trace.empty()) WEIR_RETURN_IF_ERROR(run_->WriteTrace(options_.trace));
    if (options_.trace_to != nullptr) WEIR_RETURN_IF_ERROR(run_->WriteTrace(*options_.trace_to));
    return std::move(report_);
  }

 private:
  absl::Status MakePlans() {
    const int64_t begin = clock_.NowNs();
    report_.ranks = logical_->places.num_ranks();
    report_.stages = logical_->places.size();
    if (options_.symmetry == SimulateOptions::Symmetry::kOn &&
        !logical_->places.has_equal_meshes()) {
      return Rejected({"W0705", absl::StrCat("mesh ", logical_->mesh_text),
                       "stages of one mesh, so that one rank can stand for all of its stage",
                       "stages of unequal meshes", "--symmetry off, which simulates every rank"});
    }
    symmetrical_ =
        options_.symmetry == SimulateOptions::Symmetry::kOn ||
        (options_.symmetry == SimulateOptions::Symmetry::kAuto && IsBySymmetry(*logical_));
    WEIR_ASSIGN_OR_RETURN(ClusterMap map,
                          ClusterMap::Create(cluster_, report_.ranks,
                                             symmetrical_ ? ClusterMap::HostLinks::kDivided
                                                          : ClusterMap::HostLinks::kShared));
    map_ = std::make_unique<ClusterMap>(std::move(map));
    std::vector<RankId> ranks;
    for (RankId rank : logical_->places.all_ranks()) {
      if (!symmetrical_ || logical_->places.DeviceOf(rank) == 0) ranks.push_back(rank);
    }
    for (RankId rank : ranks) {
      WEIR_ASSIGN_OR_RETURN(proto::RankPlan proto, compiler::LowerForRank(*logical_, rank));
      WEIR_ASSIGN_OR_RETURN(actors::Plan plan, actors::PlanFromProto(proto));
      plans_.push_back(std::move(plan));
    }
    if (symmetrical_) WEIR_RETURN_IF_ERROR(CompareWithLastRanks());
    report_.compile_seconds = static_cast<double>(clock_.NowNs() - begin) * 1e-9;
    return absl::OkStatus();
  }

  // Compares with the last ranks: if a dimension does not divide evenly, the last rank of a stage
  // has less work than the first.
  absl::Status CompareWithLastRanks() {
    for (const actors::Plan& first : plans_) {
      const int64_t last = logical_->places.mesh(first.stage).num_ranks() - 1;
      const RankId rank = logical_->places.RankAt(first.stage, last);
      WEIR_ASSIGN_OR_RETURN(proto::RankPlan proto, compiler::LowerForRank(*logical_, rank));
      WEIR_ASSIGN_OR_RETURN(actors::Plan other, actors::PlanFromProto(proto));
      const double here = FlopsOf(first), there = FlopsOf(other);
      if (std::abs(here - there) <= kAlike * std::max(here, there)) continue;
      return Rejected({"W0705", absl::StrCat("ranks ", first.rank, " and ", rank),
                       "a plan in which all ranks of a stage do the same",
                       absl::StrCat(here, " and ", there, " flop a step"),
                       "--symmetry off, which simulates every rank, or sizes that divide evenly"});
    }
    return absl::OkStatus();
  }

  absl::Status MakeRun() {
    const int64_t begin = clock_.NowNs();
    actors::VirtualRunOptions options;
    if (symmetrical_) {
      WEIR_ASSIGN_OR_RETURN(RankPairs pairs, PairRepresentatives(plans_, logical_->places));
      options.images = std::move(pairs.images);
      options.loose = std::move(pairs.loose);
      options.stands_for = std::move(pairs.stands_for);
    }
    double acts = 0;
    int64_t acts_of_rank = 0;
    for (const actors::Plan& plan : plans_) {
      int64_t of_this = 0;
      for (const actors::PlanActor& actor : plan.actors) of_this += actor.acts_per_step;
      acts_of_rank = std::max(acts_of_rank, of_this);
      acts += static_cast<double>(of_this);
      options.engine.devices.push_back(map_->EngineDevice(plan.rank));
    }
    // Figures are of the steps from one update to another. The first of these updates uses
    // gradients.
    const UpdateRate& updates = logical_->updates;
    const int64_t first = updates.delay * updates.every + updates.phase + 1;
    report_.steps = options_.steps > 0        ? updates.RoundUp(std::max(options_.steps, first))
                    : acts > kActsForTwoSteps ? first
                                              : updates.RoundUp(first + 1);
    settled_ = report_.steps > first ? first : 0;
    options.engine.settled_step = settled_;
    if (!options_.trace.empty() || options_.trace_to != nullptr)
      options.trace_capacity = std::min(kTracedActsMax, acts_of_rank * report_.steps + 1);
    options.engine.hosts = map_->EngineHosts();
    options.engine.seed = options_.seed;
    options.ways = [this](RankId from, RankId to) { return map_->WayBetween(from, to); };
    // Computes costs first, because that may fail.
    ActCosts acts_cost(map_.get());
    IdVector<RankId, IdVector<ActorId, ActCosts::Cost>> costs(report_.ranks);
    for (const actors::Plan& plan : plans_) {
      for (const actors::PlanActor& actor : plan.actors) {
        WEIR_ASSIGN_OR_RETURN(const ActCosts::Cost cost, acts_cost.CostOf(plan, actor));
        costs[plan.rank].push_back(cost);
      }
    }
    report_.kernels = acts_cost.sources();
    options.cost_ns = [&costs](const actors::Plan& plan, const actors::PlanActor& actor) {
      return costs[plan.rank][actor.id].ns;
    };
    options.engine.busy_speed = [&costs](const actors::Plan& plan, const actors::PlanActor& actor) {
      return costs[plan.rank][actor.id].busy_speed;
    };
    WEIR_ASSIGN_OR_RETURN(run_, actors::VirtualRun::Create(std::move(plans_), std::move(options)));
    report_.simulate_seconds = static_cast<double>(clock_.NowNs() - begin) * 1e-9;
    return absl::OkStatus();
  }

  void Tell() {
    const actors::TimeEngine& engine = run_->engine();
    const std::vector<int64_t>& ends = engine.step_end_ns();
    const int64_t counted = report_.steps - settled_;
    report_.step_ns = static_cast<double>(ends.back() - (settled_ > 0 ? ends[settled_ - 1] : 0)) /
                      static_cast<double>(counted);
    const proto::Job& job = *logical_->job;
    report_.job = job.name();
    report_.cluster = cluster_.name();
    report_.mesh = logical_->mesh_text;
    report_.plan_id = logical_->plan_id;
    report_.hosts = map_->num_hosts_used();
    report_.micro_batches = logical_->micro_batches;
    report_.ranks_simulated = static_cast<int64_t>(run_->plans().size());
    const train::StepItems items = train::ItemsOf(job);
    report_.item = items.name;
    report_.items_per_second =
        static_cast<double>(items.count) / std::max(report_.step_ns, 1.0) * 1e9;
    // Stages side by side have no formula.
    if (logical_->schedule.is_chain()) {
      report_.bubble_formula = logical_->schedule.BubbleFormula(1, 1);
      report_.bubble_formula_text = logical_->schedule.FormulaText();
    }
    const double window_ns = std::max(1.0, report_.step_ns * static_cast<double>(counted));
    for (size_t i = 0; i < run_->plans().size(); ++i)
      TellDevice(run_->plans()[i], engine.times(static_cast<int>(i)), window_ns);
    const double stands_for =
        static_cast<double>(report_.ranks) / static_cast<double>(report_.ranks_simulated);
    report_.sent_bytes =
        run_->network().payload_bytes() * stands_for / static_cast<double>(report_.steps);
    report_.model_flops = compiler::ModelFlops(*logical_);
    const char* dtype = Name(logical_->settings.training.precision);
    double peak = 0;
    for (RankId rank : logical_->places.all_ranks()) peak += map_->costs(rank).PeakFlops(dtype);
    report_.mfu = peak > 0 ? report_.model_flops / (peak * report_.step_ns * 1e-9) : 0;
    report_.acts = engine.num_acts();
    report_.events = engine.num_events();
    report_.history_hash = engine.history_hash();
  }

  void TellDevice(const actors::Plan& plan, const actors::RankTimes& times, double window_ns) {
    SimulateReport::Device device;
    device.rank = plan.rank;
    device.device = plan.device;
    for (size_t phase = 0; phase < times.busy_ns.size(); ++phase) {
      const double share = static_cast<double>(times.busy_ns[phase]) / window_ns;
      (static_cast<actors::ActorPhase>(phase) == actors::ActorPhase::kBoxing ? device.transfer
                                                                             : device.compute) +=
          share;
    }
    device.exposed = static_cast<double>(times.exposed_ns) / window_ns;
    // An act belongs to its step, though a device with several queues begins it in the step before.
    // So the acts of the window may take a little more than the window.
    const double sum = std::max(1.0, device.compute + device.transfer + device.exposed);
    device.compute /= sum;
    device.transfer /= sum;
    device.exposed /= sum;
    // Waiting is the rest: the time between acts and after the last act.
    device.waiting = std::max(0.0, 1 - device.compute - device.transfer - device.exposed);
    device.arena_bytes = static_cast<double>(plan.arena_bytes);
    device.memory_bytes = map_->costs(plan.rank).model().memory_bytes();
    const double share = 1.0 / static_cast<double>(report_.ranks_simulated);
    report_.compute += device.compute * share;
    report_.transfer += device.transfer * share;
    report_.exposed += device.exposed * share;
    report_.waiting += device.waiting * share;
    report_.devices.push_back(std::move(device));
  }

  const compiler::LogicalPlan* const logical_;
  const proto::Cluster& cluster_;
  const SimulateOptions& options_;
  const MonotonicClock clock_;  // for the time of simulating; no prediction depends on it
  bool symmetrical_ = false;
  std::unique_ptr<ClusterMap> map_;
  std::vector<actors::Plan> plans_;
  std::unique_ptr<actors::VirtualRun> run_;
  SimulateReport report_;
  int64_t settled_ = 0;  // steps before the steps of the figures
};

}  // namespace

absl::StatusOr<SimulateReport> Simulate(const proto::Job& job, const proto::Cluster& cluster,
                                        const SimulateOptions& options) {
  const MonotonicClock clock;
  const int64_t begin = clock.NowNs();
  const ClusterCosts costs(cluster);
  compiler::CompileOptions compile;
  compile.costs = &costs;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> logical,
                        compiler::CompileJob(job, compile));
  const double compile_seconds = static_cast<double>(clock.NowNs() - begin) * 1e-9;
  WEIR_ASSIGN_OR_RETURN(SimulateReport report, SimulatePlan(*logical, cluster, options));
  report.compile_seconds += compile_seconds;
  return report;
}

absl::StatusOr<SimulateReport> SimulatePlan(const compiler::LogicalPlan& plan,
                                            const proto::Cluster& cluster,
                                            const SimulateOptions& options) {
  return Simulation(plan, cluster, options).Run();
}

}  // namespace weir::sim
