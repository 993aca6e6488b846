#include "actors/session/traced_job.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "actors/engine/holders.h"

namespace weir::actors {
namespace {

std::vector<trace::TracedPort> Ports(const std::vector<PlanPort>& ports) {
  std::vector<trace::TracedPort> traced;
  for (const PlanPort& port : ports) traced.push_back({port.register_id, port});
  return traced;
}

// Returns the name of the boxing: "reduce-scatter x rank 2 to 0" belongs to "reduce-scatter x", as
// do the edges between other ranks.
std::string BoxingOf(const Plan& plan, const PlanRegister& r) {
  const bool in = r.side == RegisterSide::kInbound;
  const std::string ends =
      absl::StrCat(" rank ", in ? r.peer : plan.rank, " to ", in ? plan.rank : r.peer);
  return std::string(absl::StripSuffix(r.name, ends));
}

std::string NameOf(StateClass state_class) {
  switch (state_class) {
    case StateClass::kWeight: return "weights";
    case StateClass::kOptimizerSlot: return "optimiser";
    case StateClass::kDelayedGradient: return "delayed gradients";
    case StateClass::kFetched: return "results";
  }
  return "";
}

// Adds the memory of the rank and what lies there all the time.
void AddMemory(const Plan& plan, trace::TracedRank* rank) {
  rank->arena_bytes = plan.arena_bytes;
  rank->scratch_bytes = plan.scratch_bytes;
  for (const PlanState& state : plan.states) {
    if (state.register_id.has_value()) continue;  // a token of that register
    rank->states.push_back(
        {state.name, NameOf(state.state_class), state.slice.bytes(), state.arena_offset});
  }
}

// Returns what the transfer of a register between ranks changes, as the actor at this end knows it.
std::shared_ptr<const TransferNote> NoteOf(const Plan& plan, const PlanRegister& r) {
  const bool out = r.side == RegisterSide::kOutbound;
  const ActorId actor = out                   ? r.producer.actor
                        : r.consumers.empty() ? ActorId()
                                              : r.consumers[0].actor;
  return actor.has_value() ? plan.actors[actor].note : nullptr;
}

// Returns what tells the station of an actor. The plan gives one time to a station: to all actors
// of a rank that have one part in one exchange, such as those that pack the messages to seven other
// ranks. These actors have one timing, and share its time.
using StationKey = std::tuple<int64_t, int64_t, ActorPhase, int64_t>;
StationKey StationOf(const PlanActor& actor) {
  return {actor.timing.start_ns, actor.timing.time_ns, actor.phase, actor.acts_per_step};
}

trace::TracedRank MakeTracedRank(const RankExecutor& executor, const Holders& holders,
                                 const TickScale& scale) {
  const Plan& plan = executor.plan();
  trace::TracedRank rank;
  rank.rank = plan.rank;
  rank.device = plan.device;
  rank.acts = &executor.trace();
  rank.scale = scale;
  // A device with a depth of one act does one act at a time.
  rank.depth = executor.depth();
  rank.num_queues = executor.takes_ahead() ? executor.device()->num_queues() : 1;
  AddMemory(plan, &rank);
  std::map<StationKey, int64_t> num_actors;
  for (const PlanActor& actor : plan.actors) ++num_actors[StationOf(actor)];
  for (const PlanActor& actor : plan.actors) {
    const int64_t planned_ns = actor.timing.time_ns / num_actors[StationOf(actor)];
    rank.actors.push_back({actor, actor.name, actor.function, Name(actor.phase),
                           Ports(actor.inputs), Ports(actor.outputs), actor.priority,
                           actor.precedence, planned_ns});
    rank.actors.back().queue = QueueId(executor.queue_of(actor.id).value() % rank.num_queues);
  }
  for (const PlanRegister& r : plan.registers) {
    const bool crosses = r.side != RegisterSide::kLocal;
    rank.registers.push_back({r.name, r.bytes, r.slots, r.initial_tokens, r.edge, crosses,
                              crosses ? BoxingOf(plan, r) : "", holders.OfToken(plan, r.id),
                              holders.OfSlot(plan, r.id), crosses ? r.peer : RankId()});
    if (crosses) {
      rank.registers.back().planned_way_ns = r.latency_ns;
      rank.registers.back().note = NoteOf(plan, r);
    }
    if (r.side != RegisterSide::kOutbound) rank.registers.back().arena_offset = r.arena_offset;
  }
  return rank;
}

}  // namespace

trace::TracedJob MakeTracedJob(absl::Span<RankExecutor* const> ranks, int64_t first_step,
                               const TickScale& scale) {
  std::vector<const Plan*> plans;
  for (const RankExecutor* rank : ranks) plans.push_back(&rank->plan());
  const Holders holders(plans);
  trace::TracedJob job;
  job.first_step = first_step;
  if (!plans.empty()) {
    job.plan_id = plans[0]->plan_id;
    job.num_ranks = plans[0]->num_ranks;
    job.num_stages = plans[0]->num_stages;
    job.micro_batches = plans[0]->micro_batches;
    job.schedule = plans[0]->schedule;
    job.predicted_bubble = plans[0]->predicted_bubble;
    job.virtual_stages = plans[0]->virtual_stages;
    job.stages_in_a_row = plans[0]->stages_in_a_row;
  }
  for (const RankExecutor* rank : ranks) job.ranks.push_back(MakeTracedRank(*rank, holders, scale));
  return job;
}

}  // namespace weir::actors
