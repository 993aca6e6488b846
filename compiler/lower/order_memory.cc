#include "compiler/lower/order_memory.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/lower/slot_policy.h"

namespace weir::compiler {
namespace {

// ZeRO shards gradients from here on.
constexpr int kZeroOfGradients = 2;
// Fewer exchanges on a ring have no room to share.
constexpr size_t kExchangesMin = 3;

// On one stage whose registers have one slot, a micro-batch begins when the one before is done.
bool HoldsOneMicroBatch(const LogicalPlan& plan) {
  const Runtime& runtime = plan.job.runtime();
  if (plan.mesh.num_stages() > 1 || runtime.debug_register_slots() > 1) return false;
  return runtime.registers() == Runtime::SCHEDULE || runtime.registers() == Runtime::ONE;
}

bool IsSend(const RankActor& actor) { return actor.kind == ActorSpec::SEND; }

}  // namespace

MemoryRings::MemoryRings(const LogicalPlan& plan, int64_t stage)
    : plan_(plan), stage_(stage), ahead_(GatherAhead(plan)), members_(plan.module.items.size()) {
  if (ahead_ < 0) return;
  FindCalls();
  FindMoves();
}

void MemoryRings::FindCalls() {
  std::map<int, Wave> pass_of;  // by function
  for (const ModelFunction& function : plan_.module.model.functions) {
    pass_of[function.forward] = Wave::kForward;
    if (function.backward >= 0) pass_of[function.backward] = Wave::kBackward;
    if (function.weight_gradient >= 0) pass_of[function.weight_gradient] = Wave::kWeightGradient;
  }
  const bool one_ring = HoldsOneMicroBatch(plan_);
  for (size_t i = 0; i < members_.size(); ++i) {
    const ProgramItem& item = plan_.module.items[i];
    const auto pass = pass_of.find(item.function);
    if (item.kind != ItemKind::kCall || pass == pass_of.end() || item.outputs.empty()) continue;
    if (plan_.module.values[item.outputs[0]].stage != stage_) continue;
    const int call = static_cast<int>(i);
    members_[i] = {Role::kCall, call};
    key_of_[call] = one_ring ? Key{} : Key{pass->second, item.part};
    rings_[key_of_[call]].calls.push_back(call);
  }
}

// What every micro-batch does between calls, within the stage.
void MemoryRings::FindMoves() {
  const Module& module = plan_.module;
  std::vector<int> maker(module.values.size(), -1), reader(module.values.size(), -1);  // calls
  std::vector<char> is_data(module.values.size(), 0);
  for (size_t i = 0; i < members_.size(); ++i) {
    for (int output : module.items[i].outputs) {
      maker[output] = members_[i].call;
      is_data[output] = module.items[i].kind == ItemKind::kSource;
    }
    for (int input : module.items[i].inputs) {
      if (input >= 0 && reader[input] < 0) reader[input] = members_[i].call;
    }
  }
  std::map<int, int> gradient_of;  // calls, by value that has left them
  for (size_t i = 0; i < members_.size(); ++i) {
    const ProgramItem& item = module.items[i];
    if (members_[i].role != Role::kNone || item.rate != Rate::kMicroBatch || item.inputs.empty() || item.outputs.empty()) continue;
    const int from = item.inputs[0], to = item.outputs[0];
    if (from < 0 || module.values[from].stage != stage_ || module.values[to].stage != stage_) continue;
    const auto gradient = gradient_of.find(from);
    if (item.kind == ItemKind::kCall && gradient != gradient_of.end()) members_[i] = {Role::kSum, gradient->second};
    if (item.kind != ItemKind::kBoxing || is_data[from]) continue;
    if (maker[from] < 0 && reader[to] >= 0) {
      members_[i] = {Role::kGather, reader[to]};
      rings_[key_of_[reader[to]]].gathers.push_back(static_cast<int>(i));
    } else if (maker[from] >= 0 && reader[to] >= 0) {
      members_[i] = {Role::kValue, maker[from]};
    } else if (maker[from] >= 0 && plan_.job.training().zero_stage() >= kZeroOfGradients) {
      members_[i] = {Role::kGradient, maker[from]};
      rings_[key_of_[maker[from]]].gradients.push_back(static_cast<int>(i));
      for (int output : item.outputs) gradient_of[output] = maker[from];
    }
  }
}

bool MemoryRings::LandsWhole(int item) const {
  const Member& member = members_[item];
  if (plan_.job.runtime().chunk_bytes_max() > 0 || (member.role != Role::kGather && member.role != Role::kGradient)) return false;
  const Ring& ring = rings_.at(key_of_.at(member.call));
  return (member.role == Role::kGather ? ring.gathers : ring.gradients).size() >= kExchangesMin;
}

std::vector<MemoryRings::Ring> MemoryRings::rings() const {
  std::vector<Ring> rings;
  for (const auto& [key, ring] : rings_) rings.push_back(ring);
  return rings;
}

namespace {

using Role = MemoryRings::Role;

// One step of a transfer; on some rank of the stage it may have no sends, or no fill.
struct Exchange {
  std::vector<int> sends;
  std::vector<int> fills;
};

// A call with what moves for it: actors of this rank, by what of its memory they use.
struct Turn {
  std::vector<int> begins;   // write first
  std::vector<int> ends;     // read last
  std::vector<int> gathers;  // write what it reads of other ranks
  std::vector<int> sends;    // read what is to leave it, and sum up what of that comes back
};

class MemoryOrderer {
 public:
  MemoryOrderer(const LogicalPlan& plan, const MemoryRings& rings, RankGraph* graph)
      : micro_batches_(plan.micro_batches), rings_(rings), graph_(*graph), actors_of_(plan.module.items.size()), exchanges_of_(plan.module.items.size()) {}

  void Run() {
    const std::vector<MemoryRings::Ring> rings = rings_.rings();
    if (rings.empty()) return;
    for (size_t a = 0; a < graph_.actors.size(); ++a) actors_of_[graph_.actors[a].station.item].push_back(static_cast<int>(a));
    FindExchanges();
    FindTurns();
    for (const MemoryRings::Ring& ring : rings) {
      OrderTurns(ring.calls);
      std::vector<Exchange> inside;
      for (int call : ring.calls) inside.insert(inside.end(), exchanges_of_[call].begin(), exchanges_of_[call].end());
      OrderExchanges(inside);
      OrderExchanges(FirstSteps(ring.gathers));
      OrderExchanges(FirstSteps(ring.gradients));
    }
  }

 private:
  void FindExchanges() {
    for (const Station& station : graph_.exchanges) {
      Exchange exchange;
      for (int a : actors_of_[station.item]) {
        const int place = graph_.actors[a].station.place;
        if (place == station.place) exchange.sends.push_back(a);
        if (place == station.place + 1) exchange.fills.push_back(a);
      }
      exchanges_of_[station.item].push_back(std::move(exchange));
    }
  }

  void FindTurns() {
    for (size_t i = 0; i < actors_of_.size(); ++i) {
      if (rings_.RoleOf(static_cast<int>(i)) == Role::kNone) continue;
      Turn& turn = turns_[rings_.CallOf(static_cast<int>(i))];
      switch (rings_.RoleOf(static_cast<int>(i))) {
        case Role::kCall: AddCall(actors_of_[i], &turn); break;
        case Role::kSum: Append(actors_of_[i], &turn.sends); break;
        case Role::kGather:
          if (!exchanges_of_[i].empty()) Append(exchanges_of_[i].front().fills, &turn.gathers);
          break;
        case Role::kGradient:
        case Role::kValue:
          if (exchanges_of_[i].empty()) break;
          Append(exchanges_of_[i].front().sends, &turn.sends);
          Append(exchanges_of_[i].front().fills, &turn.sends);
          break;
        case Role::kNone: break;
      }
    }
  }

  static void Append(const std::vector<int>& from, std::vector<int>* to) { to->insert(to->end(), from.begin(), from.end()); }

  // With its own transfers.
  void AddCall(const std::vector<int>& actors, Turn* turn) const {
    const std::set<int> here(actors.begin(), actors.end());
    const auto is_here = [&](int actor) { return here.count(actor) > 0 && !IsSend(graph_.actors[actor]); };
    for (int a : actors) {
      const RankActor& actor = graph_.actors[a];
      if (IsSend(actor)) {
        turn->sends.push_back(a);
        continue;
      }
      const auto read_here = [&](int t) { return std::any_of(graph_.tensors[t].consumers.begin(), graph_.tensors[t].consumers.end(), is_here); };
      const auto made_here = [&](int t) { return is_here(graph_.tensors[t].producer); };
      if (std::none_of(actor.outputs.begin(), actor.outputs.end(), read_here)) turn->ends.push_back(a);
      if (std::none_of(actor.inputs.begin(), actor.inputs.end(), made_here)) turn->begins.push_back(a);
    }
  }

  // Of transfers in several steps those that read what is to go.
  std::vector<Exchange> FirstSteps(const std::vector<int>& items) const {
    std::vector<Exchange> exchanges;
    for (int item : items) {
      if (!exchanges_of_[item].empty()) exchanges.push_back(exchanges_of_[item].front());
    }
    return exchanges;
  }

  void OrderTurns(const std::vector<int>& calls) {
    if (calls.size() <= rings_.apart()) return;
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t next = (i + rings_.apart()) % calls.size();
      const int64_t lag = next < i ? 1 : 0;
      Order(turns_[calls[i]].ends, turns_[calls[next]].gathers, lag);
      Order(turns_[calls[i]].sends, turns_[calls[next]].begins, lag);
    }
  }

  // One after the other, and what lands for one after what was sent for the one before.
  void OrderExchanges(const std::vector<Exchange>& exchanges) {
    if (exchanges.size() < kExchangesMin) return;
    for (size_t i = 0; i < exchanges.size(); ++i) {
      const size_t next = (i + 1) % exchanges.size();
      const int64_t lag = next < i ? 1 : 0;
      Order(exchanges[i].fills, exchanges[next].sends, lag);
      for (int fill : exchanges[next].fills) TieLanding(exchanges[i].sends, fill, lag);
      for (int send : exchanges[next].sends) HoldWhole(graph_.actors[send], graph_.actors[send].outputs[0]);
    }
  }

  void TieLanding(const std::vector<int>& sends, int fill, int64_t lag) {
    if (!ActsEvenly(fill)) return;
    for (int input : graph_.actors[fill].inputs) {
      RankTensor& landing = graph_.tensors[input];
      if (landing.side != RegisterSpec::INBOUND) continue;
      HoldWhole(graph_.actors[fill], input);
      for (int send : sends) {
        if (graph_.tensors[graph_.actors[send].outputs[0]].peer == landing.peer && ActsEvenly(send)) landing.written_after = {send, lag};
      }
    }
  }

  // The next message comes after this one has been read anyway.
  void HoldWhole(const RankActor& actor, int message) {
    if (actor.chunks == 1 && rings_.LandsWhole(actor.station.item)) graph_.tensors[message].slots = 1;
  }

  // Whoever is in a ring acts once for every micro-batch, or in chunks of it.
  bool ActsEvenly(int a) const { return graph_.actors[a].acts_per_step == graph_.actors[a].chunks * micro_batches_; }

  // Acts of `after` for micro-batch n begin when those of `before` for micro-batch n - lag are done.
  void Order(const std::vector<int>& before, const std::vector<int>& after, int64_t lag) {
    RankTensor order;
    order.tokens_per_step = micro_batches_;
    order.delay = lag;
    order.slots = lag + 1;
    for (int a : after) {
      if (ActsEvenly(a)) order.consumers.push_back(a);
    }
    if (order.consumers.empty()) return;
    std::sort(order.consumers.begin(), order.consumers.end());
    order.name = absl::StrCat("room for ", graph_.actors[order.consumers[0]].name);
    for (int a : before) {
      if (!ActsEvenly(a)) continue;
      order.producer = a;
      const int tensor = static_cast<int>(graph_.tensors.size());
      graph_.tensors.push_back(order);
      graph_.actors[a].outputs.push_back(tensor);
      for (int consumer : order.consumers) graph_.actors[consumer].inputs.push_back(tensor);
    }
  }

  const int64_t micro_batches_;
  const MemoryRings& rings_;
  RankGraph& graph_;
  std::vector<std::vector<int>> actors_of_;          // by item
  std::vector<std::vector<Exchange>> exchanges_of_;  // by item
  std::map<int, Turn> turns_;                        // by call
};

}  // namespace

void OrderMemory(const LogicalPlan& plan, const MemoryRings& rings, RankGraph* graph) { MemoryOrderer(plan, rings, graph).Run(); }

}  // namespace weir::compiler
