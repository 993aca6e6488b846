#include "tests/chaos/recovery_scenario.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/tensor_slice.h"
#include "tools/job/fewer_replicas.h"

namespace weir::chaos {
namespace {

using Phase = RecoveryPhase;
using Kind = RecoveryFault::Kind;

// A fault comes after at most so many events of its phase, which is about the length of the phase.
int64_t EventsOf(Phase phase) {
  switch (phase) {
    case Phase::kStart: return 40;
    case Phase::kRun: return 60;
    case Phase::kSave: return 40;
    case Phase::kCommit: return 24;
    case Phase::kNotice: return 3;
    case Phase::kHello: return 8;
    case Phase::kStanding: return 10;
    case Phase::kOpen: return 40;
    case Phase::kMove: return 24;
    case Phase::kJoin: return 24;
    case Phase::kLoad: return 12;
    case Phase::kGrow: return 16;
  }
  return 1;
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed * 0x2545f4914f6cdd1du + 0x9e3779b97f4a7c15u) {}
  uint64_t Below(uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 31)) % bound;
  }
  bool Chance(uint64_t one_in) { return Below(one_in) == 0; }
  template <typename T, size_t n>
  T OneOf(const T (&all)[n]) {
    return all[Below(n)];
  }

 private:
  uint64_t state_;
};

RecoveryFault DrawFault(bool is_first, bool has_hosts, Draws* draws) {
  constexpr Phase kFirst[] = {Phase::kRun,  Phase::kRun,    Phase::kRun,    Phase::kSave,
                              Phase::kSave, Phase::kCommit, Phase::kCommit, Phase::kStart};
  constexpr Phase kLater[] = {Phase::kRun,   Phase::kSave,  Phase::kCommit,   Phase::kNotice,
                              Phase::kHello, Phase::kHello, Phase::kStanding, Phase::kOpen,
                              Phase::kOpen,  Phase::kMove,  Phase::kMove,     Phase::kJoin,
                              Phase::kLoad};
  constexpr Kind kAny[] = {Kind::kKill,        Kind::kKill,        Kind::kKill,
                           Kind::kKill,        Kind::kKillTwo,     Kind::kFreeze,
                           Kind::kFreeze,      Kind::kKillStarter, Kind::kKillStarter,
                           Kind::kKillWriting, Kind::kPower,       Kind::kDiskError};
  constexpr Kind kOfCommit[] = {Kind::kKill,  Kind::kKillStarter, Kind::kPower,
                                Kind::kPower, Kind::kPower,       Kind::kDiskError};
  RecoveryFault fault;
  fault.phase = is_first ? draws->OneOf(kFirst) : draws->OneOf(kLater);
  fault.kind = fault.phase == Phase::kCommit ? draws->OneOf(kOfCommit) : draws->OneOf(kAny);
  const bool writes =
      fault.phase == Phase::kRun || fault.phase == Phase::kSave || fault.phase == Phase::kCommit;
  if (fault.kind == Kind::kDiskError && !writes) fault.kind = Kind::kKill;
  const bool kills = fault.kind == Kind::kKill || fault.kind == Kind::kKillTwo;
  if (kills && has_hosts && !draws->Chance(3)) fault.kind = Kind::kLoseHost;
  fault.after = static_cast<int64_t>(1 + draws->Below(EventsOf(fault.phase)));
  fault.who = draws->Below(12);
  return fault;
}

RecoveryLayout DrawLayout(Draws* draws) {
  constexpr int32_t kReplicas[] = {1, 2, 2, 2, 3, 3, 4};
  RecoveryLayout layout;
  layout.dp = draws->OneOf(kReplicas);
  layout.tp = static_cast<int32_t>(1 + draws->Below(2));
  layout.shards_over_dp = draws->Chance(4);
  if (layout.num_ranks() % 2 == 0 && draws->Chance(3)) layout.ranks_per_worker = 2;
  return layout;
}

void DrawHosts(Draws* draws, RecoveryScenario* scenario) {
  const auto num_workers = static_cast<uint64_t>(scenario->layout.num_workers());
  const uint64_t used = 1 + draws->Below(std::min<uint64_t>(num_workers, 3));
  scenario->spares = static_cast<int>(draws->Below(3));
  const bool has_slots = draws->Chance(3);
  const uint64_t slots = (num_workers + used - 1) / used + draws->Below(2);
  for (uint64_t i = 0; i < used + static_cast<uint64_t>(scenario->spares); ++i) {
    hosts::ListedHost host;
    host.name = std::string(1, static_cast<char>('a' + i));
    host.slots = has_slots ? static_cast<int>(slots) : 0;
    scenario->hosts.push_back(std::move(host));
  }
}

// Two kills soon after each other make the mesh smaller, and later the workers of a lost host may
// go to the host of the worker that is away.
void DrawTakenPlace(Draws* draws, RecoveryScenario* scenario) {
  const auto window = static_cast<int64_t>(150 + draws->Below(150));
  const auto fault = [&](Kind kind, int64_t after) {
    return RecoveryFault{kind, Phase::kRun, after, draws->Below(12)};
  };
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(draws->Below(bound)); };
  scenario->steps += 10;
  scenario->limits = {.restarts_max = 1, .window_ms = window};
  scenario->growth.after_ms = window + 20 + below(150);
  scenario->growth.window_ms = window;
  scenario->growth.lost_again_max = 1;
  scenario->faults = {fault(Kind::kKill, 1 + below(30)), fault(Kind::kKill, 1 + below(10)),
                      fault(Kind::kLoseHost, window / 2 + below(150))};
}

// Draws how a mesh that has become smaller grows again, and what fails then. Such a job has more
// steps, and forgets its failures sooner.
void DrawGrowth(Draws* draws, RecoveryScenario* scenario) {
  constexpr Phase kOfGrowth[] = {Phase::kGrow,     Phase::kGrow, Phase::kHello, Phase::kHello,
                                 Phase::kStanding, Phase::kOpen, Phase::kMove,  Phase::kJoin};
  constexpr Kind kAny[] = {Kind::kKill,   Kind::kKill,        Kind::kKill, Kind::kKillTwo,
                           Kind::kFreeze, Kind::kKillStarter, Kind::kPower};
  scenario->steps += static_cast<int64_t>(8 + draws->Below(16));
  if (!scenario->hosts.empty() && draws->Chance(4)) return DrawTakenPlace(draws, scenario);
  scenario->limits.window_ms = static_cast<int64_t>(20 + draws->Below(200));
  scenario->growth.after_ms = static_cast<int64_t>(1 + draws->Below(80));
  scenario->growth.window_ms = scenario->limits.window_ms;
  scenario->growth.lost_again_max = scenario->limits.restarts_max;
  for (uint64_t count = draws->Below(4); count > 0; --count) {
    RecoveryFault fault;
    fault.phase = draws->OneOf(kOfGrowth);
    fault.kind = draws->OneOf(kAny);
    if (!scenario->hosts.empty() && draws->Chance(3)) fault.kind = Kind::kLoseHost;
    fault.after = static_cast<int64_t>(1 + draws->Below(EventsOf(fault.phase)));
    fault.who = draws->Below(12);
    // The first fault makes the mesh smaller.
    const auto place = static_cast<std::ptrdiff_t>(
        scenario->faults.empty() ? 0 : 1 + draws->Below(scenario->faults.size()));
    scenario->faults.insert(scenario->faults.begin() + place, fault);
  }
}

constexpr char kShardAxis[] = "tp";

}  // namespace

RecoveryScenario DrawScenario(uint64_t seed) {
  Draws draws(seed);
  RecoveryScenario scenario;
  scenario.layout = DrawLayout(&draws);
  scenario.steps = static_cast<int64_t>(3 + draws.Below(7));
  scenario.micro_batches = static_cast<int64_t>(1 + draws.Below(2));
  scenario.rows = static_cast<int64_t>(1 + draws.Below(2));
  if (draws.Chance(3)) {
    scenario.updates.every = 2;
    scenario.updates.phase = static_cast<int64_t>(draws.Below(2));
  }
  scenario.checkpoint_every = static_cast<int64_t>(draws.Below(5));
  scenario.retention.keep = static_cast<int64_t>(draws.Below(3));
  scenario.is_elastic = !draws.Chance(5);
  scenario.limits.restarts_max = static_cast<int>(draws.Below(7));
  scenario.limits.window_ms = static_cast<int64_t>(200 + draws.Below(2000));
  scenario.tells_broken = draws.Chance(2);
  scenario.changes_at_resume = draws.Chance(2);
  if (draws.Chance(20)) {
    scenario.poisoned_step = static_cast<int64_t>(1 + draws.Below(3));
    scenario.poison_signal = draws.Chance(2) ? SIGSEGV : SIGKILL;
  }
  if (!draws.Chance(3)) scenario.buddy_every = static_cast<int64_t>(1 + draws.Below(3));
  if (!draws.Chance(3)) DrawHosts(&draws, &scenario);
  const bool may_shrink =
      scenario.layout.dp > 1 && (scenario.is_elastic || !scenario.hosts.empty());
  if (may_shrink && !draws.Chance(3)) {
    if (draws.Chance(2)) scenario.limits.restarts_max = 0;
    const auto ranks = static_cast<uint64_t>(scenario.layout.num_ranks());
    scenario.min_devices = static_cast<int64_t>(1 + draws.Below(ranks - 1));
  }
  const uint64_t num_faults = draws.Below(6);
  for (uint64_t i = 0; i < num_faults; ++i) {
    scenario.faults.push_back(
        DrawFault(i == 0 || draws.Chance(4), !scenario.hosts.empty(), &draws));
  }
  if (scenario.is_elastic && scenario.min_devices > 0 && !draws.Chance(3))
    DrawGrowth(&draws, &scenario);
  return scenario;
}

void ChangeAtResume(RecoveryScenario* scenario) {
  scenario->layout.dp = scenario->layout.dp % 3 + 1;
  scenario->layout.tp = 3 - scenario->layout.tp;
  scenario->layout.shards_over_dp = !scenario->layout.shards_over_dp;
  scenario->layout.ranks_per_worker = 1;
  scenario->rows = scenario->rows % 3 + 1;
  if (scenario->layout.dp == 1) scenario->min_devices = 0;
  for (hosts::ListedHost& host : scenario->hosts) host.slots = 0;
}

proto::Job JobOf(const RecoveryScenario& scenario) {
  proto::Job job;
  proto::MeshAxisSpec* const replicas = job.mutable_mesh()->add_axis();
  replicas->set_name(job::kReplicaAxis);
  replicas->set_size(scenario.layout.dp);
  proto::MeshAxisSpec* const shards = job.mutable_mesh()->add_axis();
  shards->set_name(kShardAxis);
  shards->set_size(scenario.layout.tp);
  job.mutable_training()->set_micro_batches(scenario.micro_batches);
  return job;
}

RecoveryLayout LayoutOf(const proto::Job& job, const RecoveryScenario& scenario,
                        int num_processes) {
  RecoveryLayout layout = scenario.layout;
  layout.dp = static_cast<int32_t>(job.mesh().axis(0).size());
  layout.ranks_per_worker = (layout.num_ranks() + num_processes - 1) / num_processes;
  return layout;
}

int64_t SamplesPerStep(const proto::Job& job, const RecoveryScenario& scenario) {
  return job.mesh().axis(0).size() * job.training().micro_batches() * scenario.rows;
}

std::shared_ptr<const WorkerFacts> FactsOf(const RecoveryScenario& scenario,
                                           const RecoveryLayout& layout,
                                           IdVector<WorkerId, std::vector<RankId>> ranks_of) {
  WorkerFacts facts;
  facts.layout = layout;
  facts.ranks_of = std::move(ranks_of);
  facts.shards_of = layout.ShardsOf();
  facts.updates = scenario.updates;
  facts.tells_broken = scenario.tells_broken;
  // The first of the ranks that hold a shard writes it.
  std::vector<fleet::HeldState> written;
  for (const std::vector<fleet::HeldState>& shards : facts.shards_of) {
    std::vector<bool>& writes = facts.writes.emplace_back();
    for (const fleet::HeldState& shard : shards) {
      writes.push_back(std::none_of(written.begin(), written.end(), [&](const auto& other) {
        return other.name == shard.name && other.slice == shard.slice;
      }));
      if (writes.back()) written.push_back(shard);
    }
  }
  return std::make_shared<const WorkerFacts>(std::move(facts));
}

std::string ToText(const RecoveryScenario& scenario) {
  std::string text = absl::StrCat(
      scenario.layout.ToText(), ", ", scenario.steps, " steps of ",
      SamplesPerStep(JobOf(scenario), scenario), " samples, an update every ",
      scenario.updates.every, ", ",
      scenario.checkpoint_every == 0
          ? "no checkpoints"
          : absl::StrCat(
                "a checkpoint every ", scenario.checkpoint_every, " of which ",
                scenario.retention.keep == 0 ? "all" : absl::StrCat(scenario.retention.keep),
                " stay"),
      ", --on-failure ", scenario.is_elastic ? "elastic" : "restart", ", at most ",
      scenario.limits.restarts_max, " restarts");
  if (scenario.buddy_every > 0) absl::StrAppend(&text, ", --buddy-every ", scenario.buddy_every);
  if (!scenario.hosts.empty()) {
    absl::StrAppend(&text, ", ", scenario.hosts.size(), " hosts, ", scenario.spares,
                    " of them in reserve, with ");
    absl::StrAppend(&text, scenario.hosts.front().slots == 0
                               ? "no slots"
                               : absl::StrCat(scenario.hosts.front().slots, " slots each"));
  }
  if (scenario.min_devices > 0) absl::StrAppend(&text, ", --min-devices ", scenario.min_devices);
  if (scenario.growth.after_ms > 0)
    absl::StrAppend(&text, ", --grow-after ", scenario.growth.after_ms, " events");
  if (scenario.poisoned_step >= 0)
    absl::StrAppend(&text, ", worker 0 dies before step ", scenario.poisoned_step, " by signal ",
                    scenario.poison_signal);
  for (const RecoveryFault& fault : scenario.faults) {
    absl::StrAppend(&text, "; ", Name(fault.kind), " in ", Name(fault.phase), " after ",
                    fault.after);
  }
  return text;
}

}  // namespace weir::chaos
