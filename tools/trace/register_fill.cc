#include "tools/trace/register_fill.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weir::trace {
namespace {

// Returns the number of acts of an actor before the first whole step.
int64_t ActsBefore(const RecordedRun& run, RecordedActorId actor) {
  return run.actors[actor].ActsBefore(run.first_step);
}

// Returns the slots in use when the first whole step begins.
int64_t InUseAtBegin(const RecordedRun& run, const RecordedRegister& r) {
  int64_t given_up = std::numeric_limits<int64_t>::max();
  for (const RecordedPortRef& consumer : r.consumers) {
    const RecordedPort& port = run.actors[consumer.actor].inputs[consumer.port];
    given_up = std::min(given_up, port.TokensGivenUp(ActsBefore(run, consumer.actor)));
  }
  if (r.consumers.empty()) given_up = 0;
  int64_t taken = r.initial_tokens;
  if (r.producer.actor.has_value()) {
    const RecordedPort& port = run.actors[r.producer.actor].outputs[r.producer.port];
    taken += port.TokensTaken(ActsBefore(run, r.producer.actor));
  }
  return std::clamp<int64_t>(taken - given_up, 0, r.slots);
}

using Deltas = std::vector<std::pair<int64_t, int64_t>>;  // a moment, and slots more

void AddWrites(const RecordedRun& run, const RecordedRegister& r, Deltas* deltas) {
  if (!r.producer.actor.has_value()) return;
  const RecordedActor& actor = run.actors[r.producer.actor];
  const RecordedPort& port = actor.outputs[r.producer.port];
  for (size_t i = 0; i < actor.acts.size(); ++i) {
    const int64_t number = actor.first_act + static_cast<int64_t>(i);
    const RecordedAct* act = port.Begins(number) ? run.Act(r.producer.actor, number) : nullptr;
    if (act != nullptr) deltas->emplace_back(act->start, port.tokens);
  }
}

void AddReads(const RecordedRun& run, RecordedRegisterId index, const RecordedRegister& r,
              Deltas* deltas) {
  if (r.consumers.empty()) return;
  const RecordedPortRef& one = r.consumers.front();
  const RecordedPort& port = run.actors[one.actor].inputs[one.port];
  const int64_t first_act = ActsBefore(run, one.actor);
  const int64_t end_act = first_act + static_cast<int64_t>(run.actors[one.actor].acts.size());
  for (int64_t token = port.TokensGivenUp(first_act); token < port.TokensGivenUp(end_act);
       ++token) {
    if (const RecordedAct* last = run.LastReader(index, token)) deltas->emplace_back(last->end, -1);
  }
}

}  // namespace

RegisterFill FindFill(const RecordedRun& run, RecordedRegisterId register_index) {
  const RecordedRegister& r = run.registers[register_index];
  const int64_t begin = run.times.steps.front().begin;
  Deltas deltas;
  AddWrites(run, r, &deltas);
  AddReads(run, register_index, r, &deltas);
  // The order puts the slots that are given up at a moment before those that are taken then.
  std::sort(deltas.begin(), deltas.end());
  RegisterFill fill;
  int64_t in_use = InUseAtBegin(run, r);
  fill.changes.push_back({begin, in_use});
  for (size_t i = 0; i < deltas.size(); ++i) {
    in_use = std::clamp<int64_t>(in_use + deltas[i].second, 0, r.slots);
    const int64_t at = std::max(deltas[i].first, begin);
    const bool is_last = i + 1 == deltas.size() || std::max(deltas[i + 1].first, begin) > at;
    if (!is_last || in_use == fill.changes.back().in_use) continue;
    if (at == begin) fill.changes.clear();
    fill.changes.push_back({at, in_use});
  }
  for (size_t i = 0; i < fill.changes.size(); ++i) {
    fill.most = std::max(fill.most, fill.changes[i].in_use);
    const int64_t until =
        i + 1 < fill.changes.size() ? fill.changes[i + 1].at : run.times.steps.back().end;
    if (fill.changes[i].in_use == r.slots)
      fill.full_ns += run.times.Inside(fill.changes[i].at, until, 0);
  }
  return fill;
}

}  // namespace weir::trace
