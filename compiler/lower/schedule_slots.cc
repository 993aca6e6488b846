#include "compiler/lower/schedule_slots.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace weir::compiler {
namespace {

std::optional<PipelinePass> PassOf(Wave wave) {
  switch (wave) {
    case Wave::kForward: return PipelinePass::kForward;
    case Wave::kBackward: return PipelinePass::kBackward;
    case Wave::kWeightGradient: return PipelinePass::kWeightGradient;
    case Wave::kUpdate:
    case Wave::kNone: return std::nullopt;
  }
  return std::nullopt;
}

// Returns whether the actor computes a pass itself. Other actors carry the results of computing
// actors.
bool Computes(const RankActor& actor) {
  return actor.phase == PhaseKind::kForward || actor.phase == PhaseKind::kBackward ||
         actor.phase == PhaseKind::kWeightGradient;
}

// Returns whether the actor reads a value that the same pass of the same part made on this rank.
bool GoesOn(const RankGraph& graph, const RankActor& actor) {
  for (TensorId input : actor.inputs) {
    if (!graph.tensors[input].producer.has_value()) continue;
    const RankActor& producer = graph.actors[graph.tensors[input].producer];
    if (producer.wave != actor.wave || producer.part != actor.part ||
        producer.phase == PhaseKind::kData)
      continue;
    if (Computes(producer)) return true;
    // The producer is a transfer. A local input shows a transfer within the stage.
    for (TensorId carried : producer.inputs) {
      if (graph.tensors[carried].side == proto::RegisterSpec::LOCAL &&
          graph.tensors[carried].producer.has_value())
        return true;
    }
  }
  return false;
}

// Returns how many stages the data of a fill skipped on its way from a stage farther than the
// neighbour, by the longest way between the two. The fill waits for the micro-batches that went
// through the skipped stages.
int64_t StagesSkipped(const LogicalPlan& plan, const RankGraph& graph, const RankActor& actor) {
  int64_t most = 0;
  for (TensorId input : actor.inputs) {
    if (graph.tensors[input].side != proto::RegisterSpec::INBOUND) continue;
    const int64_t far = plan.schedule.StagesAfter(plan.places.PlaceOf(graph.tensors[input].peer));
    most = std::max(most, std::abs(far - plan.schedule.StagesAfter(graph.stage)) - 1);
  }
  return most;
}

// Returns whether other stages wait for backward passes of the rank's stage.
bool IsAwaitedByStages(const LogicalPlan& plan, const RankGraph& graph) {
  return plan.schedule.ReadsStages(graph.stage) || plan.schedule.virtual_stages > 1;
}

}  // namespace

int64_t ScheduleSlots(const LogicalPlan& plan, const RankGraph& graph, const RankTensor& tensor) {
  if (tensor.variable >= 0) return 1;
  if (tensor.side != proto::RegisterSpec::LOCAL || tensor.paces)
    return tensor.tokens_per_step > 1 ? 2 : 1;
  if (tensor.tokens_per_step == 1) return 1;
  const RankActor& producer = graph.actors[tensor.producer];
  const std::optional<PipelinePass> made = PassOf(producer.wave);
  int64_t slots = std::min(1 + StagesSkipped(plan, graph, producer), tensor.tokens_per_step);
  for (ActorId c : tensor.consumers) {
    const RankActor& consumer = graph.actors[c];
    const std::optional<PipelinePass> read = PassOf(consumer.wave);
    if (!made.has_value() || !read.has_value() || *read < *made) continue;
    // A transfer runs at once, whatever its part.
    if (*made == *read && !(Computes(producer) && Computes(consumer))) continue;
    slots = std::max(slots, plan.schedule.Kept(*made, producer.part, *read, consumer.part));
  }
  return slots;
}

std::optional<PipelinePass> ComputedPass(const RankActor& actor) {
  return Computes(actor) ? PassOf(actor.wave) : std::nullopt;
}

Precedence SchedulePrecedence(const LogicalPlan& plan, const RankActor& actor) {
  const std::optional<PipelinePass> pass = ComputedPass(actor);
  if (!pass.has_value() || actor.acts_per_step != plan.micro_batches) return {};
  return plan.schedule.PrecedenceOf(*pass, actor.part);
}

int SchedulePriority(const LogicalPlan& plan, const RankGraph& graph, const RankActor& actor) {
  // In a schedule by precedences, data and reports must not delay the actor that goes first.
  const bool one_f_one_b = plan.schedule.kind == ScheduleKind::kOneFOneB;
  switch (actor.phase) {
    // Transfers go first, so that peers need not wait. But an earlier stage waits for backward
    // passes, and nobody waits for a sum of gradients before the update.
    case PhaseKind::kBoxing:
      return actor.wave == Wave::kUpdate && IsAwaitedByStages(plan, graph) ? 20 : 60;
    case PhaseKind::kUpdate: return 50;
    case PhaseKind::kForward:
    case PhaseKind::kBackward:
    case PhaseKind::kWeightGradient:
      return plan.schedule.PriorityOf(*PassOf(actor.wave), GoesOn(graph, actor)
                                                               ? PipelineSchedule::Begin::kGoesOn
                                                               : PipelineSchedule::Begin::kBegins);
    case PhaseKind::kData: return one_f_one_b ? 20 : 46;
    case PhaseKind::kMetric: return one_f_one_b ? 10 : 45;
  }
  return 0;
}

}  // namespace weir::compiler
