#include "compiler/lower/drop_useless_actors.h"

#include <utility>
#include <vector>

namespace weir::compiler {
namespace {

// Removes unread variables from an actor that keeps several.
void DropUnreadVariables(const std::vector<char>& read, RankGraph* graph, RankActor* actor) {
  if (!actor->inputs.empty()) return;
  auto unread = [&](int output) { return graph->tensors[output].variable >= 0 && !read[output]; };
  for (int output : actor->outputs) {
    if (unread(output)) graph->tensors[output].producer = -1;
  }
  std::erase_if(actor->outputs, unread);
}

bool HasEffect(const RankGraph& graph, const RankActor& actor, const std::vector<char>& read) {
  if (actor.kind == proto::ActorSpec::SINK || actor.kind == proto::ActorSpec::SEND) return true;
  // An update keeps its variable. A variable that is only kept must have a reader.
  bool updates = !actor.inputs.empty();
  for (int output : actor.outputs) {
    if (read[output] || (updates && graph.tensors[output].variable >= 0)) return true;
  }
  if (actor.chain != nullptr && actor.chain->writes_state) return true;
  // A landing buffer must be emptied even if nothing in it is kept.
  for (int input : actor.inputs) {
    if (graph.tensors[input].side == proto::RegisterSpec::INBOUND) return true;
  }
  return false;
}

}  // namespace

void DropUselessActors(RankGraph* graph) {
  std::vector<char> read(graph->tensors.size(), 0);
  std::vector<char> useful(graph->actors.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t a = graph->actors.size(); a-- > 0;) {
      const RankActor& actor = graph->actors[a];
      if (useful[a] || !HasEffect(*graph, actor, read)) continue;
      useful[a] = 1;
      changed = true;
      for (int input : actor.inputs) read[input] = 1;
    }
  }
  size_t kept = 0;
  for (size_t a = 0; a < graph->actors.size(); ++a) {
    const int id = useful[a] ? static_cast<int>(kept) : -1;
    for (int output : graph->actors[a].outputs) graph->tensors[output].producer = id;
    if (!useful[a]) continue;
    DropUnreadVariables(read, graph, &graph->actors[a]);
    if (kept < a) graph->actors[kept] = std::move(graph->actors[a]);
    ++kept;
  }
  graph->actors.resize(kept);
}

}  // namespace weir::compiler
