#include "compiler/lower/drop_useless_actors.h"

#include <utility>
#include <vector>

namespace weir::compiler {
namespace {

// Removes unread variables from an actor that keeps several.
void DropUnreadVariables(const IdVector<TensorId, char>& read, RankGraph* graph, RankActor* actor) {
  if (!actor->inputs.empty()) return;
  auto unread = [&](TensorId output) {
    return graph->tensors[output].variable >= 0 && !read[output];
  };
  for (TensorId output : actor->outputs) {
    if (unread(output)) graph->tensors[output].producer = ActorId();
  }
  std::erase_if(actor->outputs, unread);
}

bool HasEffect(const RankGraph& graph, const RankActor& actor,
               const IdVector<TensorId, char>& read) {
  if (actor.kind == proto::ActorSpec::SINK || actor.kind == proto::ActorSpec::SEND) return true;
  // The other ranks of a group need this one, whether or not somebody reads the result here.
  if (actor.kind == proto::ActorSpec::COLLECTIVE) return true;
  // An update keeps its variable. A variable that is only kept must have a reader.
  bool updates = !actor.inputs.empty();
  for (TensorId output : actor.outputs) {
    if (read[output] || (updates && graph.tensors[output].variable >= 0)) return true;
  }
  if (actor.chain != nullptr && actor.chain->writes_state) return true;
  // A landing buffer must be emptied even if nothing in it is kept.
  for (TensorId input : actor.inputs) {
    if (graph.tensors[input].side == proto::RegisterSpec::INBOUND) return true;
  }
  return false;
}

}  // namespace

void DropUselessActors(RankGraph* graph) {
  IdVector<TensorId, char> read(graph->tensors.size(), 0);
  IdVector<ActorId, char> useful(graph->actors.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (int number = graph->actors.next_id().value(); number-- > 0;) {
      const ActorId a(number);
      const RankActor& actor = graph->actors[a];
      if (useful[a] || !HasEffect(*graph, actor, read)) continue;
      useful[a] = 1;
      changed = true;
      for (TensorId input : actor.inputs) read[input] = 1;
    }
  }
  ActorId kept(0);  // the id of the next actor that stays
  for (ActorId a : graph->actors.ids()) {
    const ActorId id = useful[a] ? kept : ActorId();
    for (TensorId output : graph->actors[a].outputs) graph->tensors[output].producer = id;
    if (!useful[a]) continue;
    DropUnreadVariables(read, graph, &graph->actors[a]);
    if (kept < a) graph->actors[kept] = std::move(graph->actors[a]);
    kept = ActorId(kept.value() + 1);
  }
  graph->actors.resize(static_cast<size_t>(kept.value()));
}

}  // namespace weir::compiler
