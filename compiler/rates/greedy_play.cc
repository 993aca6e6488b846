#include "compiler/rates/greedy_play.h"

#include <algorithm>
#include <utility>

namespace weir::compiler {

GreedyPlay::GreedyPlay(const TimedGraph& graph, PrecedenceOf precedence_of)
    : graph_(graph), precedence_of_(std::move(precedence_of)), waits_(AllWaits(graph)) {
  const size_t num_actors = graph.actors.size();
  waits_of_.resize(num_actors);
  held_by_.assign(num_actors, -1);
  watched_by_.resize(num_actors);
  seen_.assign(waits_.size(), 0);
  started_.assign(num_actors, 0);
  ends_.resize(num_actors);
  int devices = 0;
  for (const TimedGraph::Actor& actor : graph.actors) devices = std::max(devices, actor.device + 1);
  for (const TimedGraph::Actor& actor : graph.actors)
    device_of_.push_back(actor.device >= 0 ? actor.device : devices++);
  ready_.resize(devices);
  busy_.assign(devices, 0);
  for (size_t w = 0; w < waits_.size(); ++w) {
    waits_of_[waits_[w].waiter].push_back(static_cast<int>(w));
    watched_by_[waits_[w].other].push_back(static_cast<int>(w));
    const TimedGraph::Port &waiter = waits_[w].waiter_port, &other = waits_[w].other_port;
    plain_.push_back(waiter.period == 1 && waiter.tokens == 1 && other.period == 1 &&
                     other.tokens == 1);
  }
}

bool GreedyPlay::Run(int64_t iterations) {
  for (ActorId a : graph_.actors.ids()) Offer(a, iterations);
  for (int64_t now = 0;;) {
    for (size_t d = 0; d < ready_.size(); ++d) Start(static_cast<int>(d), now);
    if (events_.empty()) break;
    now = std::get<0>(events_.top());
    while (!events_.empty() && std::get<0>(events_.top()) == now) {
      const auto [time, actor, wait] = events_.top();
      events_.pop();
      if (wait < 0) {
        End(actor, now, iterations);
      } else {
        ++seen_[wait];
        Offer(waits_[wait].waiter, iterations);
      }
    }
  }
  for (ActorId a : graph_.actors.ids()) {
    if (static_cast<int64_t>(ends_[a].size()) < iterations * graph_.actors[a].acts) return false;
  }
  return true;
}

double GreedyPlay::Period(ActorId actor, double share) const {
  const std::vector<int64_t>& ends = ends_[actor];
  const size_t chunks = static_cast<size_t>(graph_.actors[actor].chunks);
  const size_t first =
      static_cast<size_t>(static_cast<double>(ends.size()) * (1 - share)) / chunks * chunks;
  return static_cast<double>(ends[ends.size() - chunks] - ends[first]) /
         static_cast<double>((ends.size() - chunks - first) / chunks);
}

// Returns whether the next act of the waiter has what it waits for.
bool GreedyPlay::IsKept(int w) const {
  const Wait& wait = waits_[w];
  const int64_t act = started_[wait.waiter];
  if (plain_[w]) return seen_[w] > act - wait.lag;
  const int64_t token =
      (act / wait.waiter_port.period + 1) * wait.waiter_port.tokens - 1 - wait.lag;
  return token < 0 || seen_[w] / wait.other_port.period * wait.other_port.tokens > token;
}

bool GreedyPlay::MayAct(ActorId actor) {
  if (held_by_[actor] >= 0 && !IsKept(held_by_[actor])) return false;
  for (int wait : waits_of_[actor]) {
    if (IsKept(wait)) continue;
    held_by_[actor] = wait;
    return false;
  }
  return true;
}

void GreedyPlay::Offer(ActorId actor, int64_t iterations) {
  const TimedGraph::Actor& a = graph_.actors[actor];
  if (static_cast<int64_t>(ends_[actor].size()) != started_[actor] ||
      started_[actor] >= iterations * a.acts || !MayAct(actor))
    return;
  const int64_t micro_batch = started_[actor] / a.chunks;
  ready_[device_of_[actor]].insert(
      {-a.priority, precedence_of_ ? precedence_of_(actor, micro_batch) : micro_batch, actor});
}

void GreedyPlay::Start(int device, int64_t now) {
  if (busy_[device] != 0 || ready_[device].empty()) return;
  const ActorId actor = std::get<2>(*ready_[device].begin());
  ready_[device].erase(ready_[device].begin());
  busy_[device] = 1;
  ++started_[actor];
  events_.push({now + graph_.actors[actor].time_ns, actor, -1});
}

void GreedyPlay::End(ActorId actor, int64_t now, int64_t iterations) {
  busy_[device_of_[actor]] = 0;
  ends_[actor].push_back(now);
  for (int w : watched_by_[actor]) {
    if (waits_[w].latency_ns > 0) {
      events_.push({now + waits_[w].latency_ns, actor, w});
    } else {
      ++seen_[w];
      Offer(waits_[w].waiter, iterations);
    }
  }
  Offer(actor, iterations);
}

}  // namespace weir::compiler
