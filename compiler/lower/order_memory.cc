#include "compiler/lower/order_memory.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/lower/slot_policy.h"

namespace weir::compiler {
namespace {

// From this zero_stage on, ZeRO shards gradients.
constexpr int kZeroOfGradients = 2;
// With fewer exchanges, a ring has no room to share.
constexpr size_t kExchangesMin = 3;

// On a single stage whose registers have one slot, a micro-batch begins when the micro-batch before
// it is done.
bool HoldsOneMicroBatch(const LogicalPlan& plan) {
  const RuntimeSettings& runtime = plan.settings.runtime;
  if (plan.places.size() > 1 || runtime.debug_register_slots > 1) return false;
  return runtime.registers == RegisterChoice::kSchedule ||
         runtime.registers == RegisterChoice::kOne;
}

bool IsSend(const RankActor& actor) { return actor.role == TransferRole::kSends; }

}  // namespace

MemoryRings::MemoryRings(const LogicalPlan& plan, int64_t stage)
    : plan_(plan),
      stage_(stage),
      ahead_(plan.settings.runtime.gather_ahead),
      members_(plan.module.items.size()) {
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

// Finds the work of every micro-batch between the calls of the stage.
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
  std::map<int, int> gradient_of;  // calls, by a value that has left them
  for (size_t i = 0; i < members_.size(); ++i) {
    const ProgramItem& item = module.items[i];
    if (members_[i].role != Role::kNone || item.frequency != Frequency::kMicroBatch ||
        item.inputs.empty() || item.outputs.empty())
      continue;
    const int from = item.inputs[0], to = item.outputs[0];
    if (from < 0 || module.values[from].stage != stage_ || module.values[to].stage != stage_)
      continue;
    const auto gradient = gradient_of.find(from);
    if (item.kind == ItemKind::kCall && gradient != gradient_of.end())
      members_[i] = {Role::kSum, gradient->second};
    if (item.kind != ItemKind::kBoxing || is_data[from]) continue;
    if (maker[from] < 0 && reader[to] >= 0) {
      members_[i] = {Role::kGather, reader[to]};
      rings_[key_of_[reader[to]]].gathers.push_back(static_cast<int>(i));
    } else if (maker[from] >= 0 && reader[to] >= 0) {
      members_[i] = {Role::kValue, maker[from]};
    } else if (maker[from] >= 0 && plan_.settings.training.zero_stage >= kZeroOfGradients) {
      members_[i] = {Role::kGradient, maker[from]};
      rings_[key_of_[maker[from]]].gradients.push_back(static_cast<int>(i));
      for (int output : item.outputs) gradient_of[output] = maker[from];
    }
  }
}

bool MemoryRings::LandsWhole(int item) const {
  const Member& member = members_[item];
  if (plan_.settings.runtime.chunk_bytes_max > 0 ||
      (member.role != Role::kGather && member.role != Role::kGradient))
    return false;
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

// An Exchange is one step of a transfer. On some ranks of the stage an
// Exchange has no sends, or no fill.
struct Exchange {
  std::vector<ActorId> sends;
  std::vector<ActorId> fills;
};

// The actors of a ring act once for every micro-batch, or in chunks of a micro-batch.
bool ActsEvenly(const LogicalPlan& plan, const RankActor& actor) {
  return actor.acts_per_step == actor.chunks * plan.micro_batches;
}

// The actors and exchanges of a graph, by item.
class ItemView {
 public:
  ItemView(const LogicalPlan& plan, const RankGraph& graph)
      : actors_(plan.module.items.size()), exchanges_(plan.module.items.size()) {
    for (ActorId a : graph.actors.ids()) actors_[graph.actors[a].station.item].push_back(a);
    for (size_t site = 0; site < graph.sites.size(); ++site) {
      const int item = graph.sites[site].ends[0].station.item;
      Exchange exchange;
      for (ActorId a : actors_[item]) {
        const RankActor& actor = graph.actors[a];
        if (actor.site != static_cast<int>(site)) continue;
        (IsSend(actor) ? exchange.sends : exchange.fills).push_back(a);
      }
      exchanges_[item].push_back(std::move(exchange));
    }
  }

  const std::vector<ActorId>& actors(int item) const { return actors_[item]; }
  const std::vector<Exchange>& exchanges(int item) const { return exchanges_[item]; }

  // Returns the exchanges that go one after the other, in lists. A transfer in several steps counts
  // with its first exchange, because its first sends read the data that must go.
  std::vector<std::vector<Exchange>> ExchangesInOrder(const MemoryRings::Ring& ring) const {
    std::vector<std::vector<Exchange>> lists(1);
    for (int call : ring.calls)
      lists[0].insert(lists[0].end(), exchanges_[call].begin(), exchanges_[call].end());
    for (const std::vector<int>* items : {&ring.gathers, &ring.gradients}) {
      lists.emplace_back();
      for (int item : *items) {
        if (!exchanges_[item].empty()) lists.back().push_back(exchanges_[item].front());
      }
    }
    std::erase_if(lists, [](const std::vector<Exchange>& exchanges) {
      return exchanges.size() < kExchangesMin;
    });
    return lists;
  }

 private:
  // By item:
  std::vector<std::vector<ActorId>> actors_;
  std::vector<std::vector<Exchange>> exchanges_;
};

// A call with its transfers: actors of the shape, grouped by their use of the rank's memory.
struct MemoryUse {
  std::vector<ActorId> begins;   // write first
  std::vector<ActorId> ends;     // read last
  std::vector<ActorId> gathers;  // write data of other ranks that the call reads
  std::vector<ActorId>
      sends;  // read data that leaves the call, or sum up such data that comes back
};

class OrderFinder {
 public:
  OrderFinder(const LogicalPlan& plan, const MemoryRings& rings, const RankGraph& shape)
      : plan_(plan), rings_(rings), shape_(shape), view_(plan, shape) {}

  std::vector<MemoryOrder> Run() {
    const std::vector<MemoryRings::Ring> rings = rings_.rings();
    if (!rings.empty()) FindUses();
    for (const MemoryRings::Ring& ring : rings) {
      OrderByWindow(ring.calls);
      for (const std::vector<Exchange>& exchanges : view_.ExchangesInOrder(ring))
        OrderExchanges(exchanges);
    }
    return std::move(orders_);
  }

 private:
  void FindUses() {
    for (size_t i = 0; i < plan_.module.items.size(); ++i) {
      const int item = static_cast<int>(i);
      if (rings_.RoleOf(item) == Role::kNone) continue;
      MemoryUse& use = uses_[rings_.CallOf(item)];
      const std::vector<Exchange>& exchanges = view_.exchanges(item);
      switch (rings_.RoleOf(item)) {
        case Role::kCall: AddCall(view_.actors(item), &use); break;
        case Role::kSum: Append(view_.actors(item), &use.sends); break;
        case Role::kGather:
          if (!exchanges.empty()) Append(exchanges.front().fills, &use.gathers);
          break;
        case Role::kGradient:
        case Role::kValue:
          if (exchanges.empty()) break;
          Append(exchanges.front().sends, &use.sends);
          Append(exchanges.front().fills, &use.sends);
          break;
        case Role::kNone: break;
      }
    }
  }

  static void Append(const std::vector<ActorId>& from, std::vector<ActorId>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  // Adds a call with the transfers inside it.
  void AddCall(const std::vector<ActorId>& actors, MemoryUse* use) const {
    const std::set<ActorId> here(actors.begin(), actors.end());
    const auto is_here = [&](ActorId actor) {
      return here.count(actor) > 0 && !IsSend(shape_.actors[actor]);
    };
    for (ActorId a : actors) {
      const RankActor& actor = shape_.actors[a];
      if (IsSend(actor)) {
        use->sends.push_back(a);
        continue;
      }
      const auto read_here = [&](TensorId t) {
        return std::any_of(shape_.tensors[t].consumers.begin(), shape_.tensors[t].consumers.end(),
                           is_here);
      };
      const auto made_here = [&](TensorId t) { return is_here(shape_.tensors[t].producer); };
      if (std::none_of(actor.outputs.begin(), actor.outputs.end(), read_here))
        use->ends.push_back(a);
      if (std::none_of(actor.inputs.begin(), actor.inputs.end(), made_here))
        use->begins.push_back(a);
    }
  }

  // Ties each call to the call that enters the window when the call itself leaves it.
  void OrderByWindow(const std::vector<int>& calls) {
    if (calls.size() <= rings_.apart()) return;
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t next = (i + rings_.apart()) % calls.size();
      const int64_t lag = next < i ? 1 : 0;
      Order(uses_[calls[i]].ends, uses_[calls[next]].gathers, lag);
      Order(uses_[calls[i]].sends, uses_[calls[next]].begins, lag);
    }
  }

  // Orders exchanges one after the other.
  void OrderExchanges(const std::vector<Exchange>& exchanges) {
    for (size_t i = 0; i < exchanges.size(); ++i) {
      const size_t next = (i + 1) % exchanges.size();
      Order(exchanges[i].fills, exchanges[next].sends, next < i ? 1 : 0);
    }
  }

  void Order(const std::vector<ActorId>& before, const std::vector<ActorId>& after, int64_t lag) {
    MemoryOrder order;
    order.lag = lag;
    for (ActorId a : after) {
      if (ActsEvenly(plan_, shape_.actors[a])) order.after.push_back(shape_.actors[a].station);
    }
    if (order.after.empty()) return;
    std::sort(order.after.begin(), order.after.end());
    for (ActorId a : before) {
      if (!ActsEvenly(plan_, shape_.actors[a])) continue;
      order.before = shape_.actors[a].station;
      orders_.push_back(order);
    }
  }

  const LogicalPlan& plan_;
  const MemoryRings& rings_;
  const RankGraph& shape_;
  const ItemView view_;
  std::map<int, MemoryUse> uses_;  // by call
  std::vector<MemoryOrder> orders_;
};

class MemoryOrderer {
 public:
  MemoryOrderer(const LogicalPlan& plan, const MemoryRings& rings, RankGraph* graph)
      : plan_(plan), rings_(rings), graph_(*graph), view_(plan, *graph) {}

  void Run(const std::vector<MemoryOrder>& orders) {
    for (ActorId a : graph_.actors.ids()) actors_at_[graph_.actors[a].station].push_back(a);
    for (const MemoryOrder& order : orders) Add(order);
    for (const MemoryRings::Ring& ring : rings_.rings()) {
      for (const std::vector<Exchange>& exchanges : view_.ExchangesInOrder(ring))
        TieExchanges(exchanges);
    }
  }

 private:
  // Adds a token without bytes, if this rank has both ends of the order.
  void Add(const MemoryOrder& order) {
    const auto before = actors_at_.find(order.before);
    if (before == actors_at_.end()) return;
    RankTensor token;
    for (const Station& station : order.after) {
      const auto after = actors_at_.find(station);
      if (after != actors_at_.end())
        token.consumers.insert(token.consumers.end(), after->second.begin(), after->second.end());
    }
    if (token.consumers.empty()) return;
    std::sort(token.consumers.begin(), token.consumers.end());
    token.name = absl::StrCat("room for ", graph_.actors[token.consumers[0]].name);
    token.readers = order.after;
    token.tokens_per_step = plan_.micro_batches;
    token.delay = order.lag;
    token.slots = order.lag + 1;
    for (ActorId a : before->second) {
      token.producer = a;
      const TensorId tensor = graph_.tensors.next_id();
      graph_.tensors.push_back(token);
      graph_.actors[a].outputs.push_back(tensor);
      for (ActorId consumer : token.consumers) graph_.actors[consumer].inputs.push_back(tensor);
    }
  }

  // Ties each exchange to the exchange before: messages for the later land after the sends of the
  // earlier.
  void TieExchanges(const std::vector<Exchange>& exchanges) {
    for (size_t i = 0; i < exchanges.size(); ++i) {
      const size_t next = (i + 1) % exchanges.size();
      for (ActorId fill : exchanges[next].fills)
        TieLanding(exchanges[i].sends, fill, next < i ? 1 : 0);
      for (ActorId send : exchanges[next].sends)
        HoldWhole(graph_.actors[send], graph_.actors[send].outputs[0]);
    }
  }

  void TieLanding(const std::vector<ActorId>& sends, ActorId fill, int64_t lag) {
    if (!ActsEvenly(plan_, graph_.actors[fill])) return;
    for (TensorId input : graph_.actors[fill].inputs) {
      RankTensor& landing = graph_.tensors[input];
      if (landing.side != proto::RegisterSpec::INBOUND) continue;
      HoldWhole(graph_.actors[fill], input);
      for (ActorId send : sends) {
        const RankActor& sender = graph_.actors[send];
        if (sender.peer == landing.peer && ActsEvenly(plan_, sender))
          landing.written_after = {send, lag};
      }
    }
  }

  // Gives a message one slot: the next message arrives only after this message has been read
  // anyway.
  void HoldWhole(const RankActor& actor, TensorId message) {
    if (actor.chunks == 1 && rings_.LandsWhole(actor.station.item))
      graph_.tensors[message].slots = 1;
  }

  const LogicalPlan& plan_;
  const MemoryRings& rings_;
  RankGraph& graph_;
  const ItemView view_;
  std::map<Station, std::vector<ActorId>> actors_at_;
};

}  // namespace

std::vector<MemoryOrder> FindMemoryOrders(const LogicalPlan& plan, const MemoryRings& rings,
                                          const RankGraph& shape) {
  return OrderFinder(plan, rings, shape).Run();
}

void OrderMemory(const LogicalPlan& plan, const MemoryRings& rings,
                 const std::vector<MemoryOrder>& orders, RankGraph* graph) {
  if (!rings.rings().empty()) MemoryOrderer(plan, rings, graph).Run(orders);
}

}  // namespace weir::compiler
