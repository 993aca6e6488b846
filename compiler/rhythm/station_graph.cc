#include "compiler/rhythm/station_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/lower/schedule_slots.h"
#include "compiler/lower/slot_policy.h"

namespace weir::compiler {
namespace {

// Far above what runs; keeps sums of fantastic sizes from overflowing before the plan is refused.
constexpr int64_t kBytesMax = int64_t{1} << 46;
constexpr int64_t kAlignment = 64;

int64_t AlignedBytes(int64_t bytes) {
  return bytes < 0 || bytes > kBytesMax ? kBytesMax : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// "all-gather x to rank 3" is one of the sends of "all-gather x".
std::string StationName(const RankActor& actor) {
  return actor.kind == ActorSpec::SEND ? actor.name.substr(0, actor.name.rfind(" to rank ")) : actor.name;
}

}  // namespace

int64_t ActNs(const RankActor& actor, const CostModel& costs) {
  int64_t ns = costs.ActNs();
  for (const RankKernel& kernel : actor.kernels) {
    KernelUse use{kernel.op, kernel.attrs, {}, {}};
    for (const RankOperand& output : kernel.outputs) use.outputs.push_back(output.slice);
    // What an exchange reads is what it writes, whatever the size of the shard that it lies in.
    if (kernel.op == "exchange_pack" || kernel.op == "exchange_fill") {
      use.inputs = use.outputs;
    } else {
      for (const RankOperand& input : kernel.inputs) use.inputs.push_back(input.slice);
    }
    const int64_t whole = costs.KernelNs(use);
    ns += kernel.op == "exchange_fill" ? whole / std::max<int64_t>(1, actor.chunks) : whole;
  }
  return std::clamp<int64_t>(ns, 1, kActNsMax);
}

void StationGraphBuilder::Add(const RankGraph& graph) {
  AddStations(graph);
  AddRegisters(graph);
}

void StationGraphBuilder::AddStations(const RankGraph& graph) {
  struct Load {
    double ns = 0;
    int64_t chunks = 1;
  };
  std::map<Station, Load> loads;
  for (const RankActor& actor : graph.actors) {
    Load& load = loads[actor.station];
    load.ns += static_cast<double>(ActNs(actor, costs_)) * static_cast<double>(actor.chunks);
    load.chunks = std::max(load.chunks, actor.chunks);
    auto [known, is_new] = stations_.try_emplace(actor.station);
    StationData& data = known->second;
    if (is_new) {
      data.name = StationName(actor);
      data.stage = graph.stage;
      data.micro_batches = actor.acts_per_step / actor.chunks;
      data.pass = {ComputedPass(actor), actor.part, ScheduleTurn(plan_, actor)};
      data.fills = actor.phase == PhaseKind::kBoxing && actor.kind == ActorSpec::COMPUTE;
    }
    data.priority = SchedulePriority(plan_, graph, actor);
    data.chunks = std::max(data.chunks, actor.chunks);
  }
  for (const auto& [station, load] : loads) {
    StationData& data = stations_[station];
    data.act_ns = std::clamp<int64_t>(static_cast<int64_t>(load.ns / static_cast<double>(load.chunks)), data.act_ns, kActNsMax);
  }
}

void StationGraphBuilder::AddRegisters(const RankGraph& graph) {
  std::map<RegisterFamily, RegisterData> here;
  for (const RankTensor& tensor : graph.tensors) {
    RegisterFamily key;
    const bool local = tensor.side == RegisterSpec::LOCAL;
    if (tensor.producer < 0 && local) continue;  // of another stage
    if (tensor.paces) continue;                  // the messages of the exchange say as much, and have a latency besides
    std::set<Station> consumers;
    for (int consumer : tensor.consumers) consumers.insert(graph.actors[consumer].station);
    RegisterData data;
    data.name = tensor.name;
    data.slots = GivenSlots(plan_, graph, tensor);
    if (local) {
      if (consumers.empty()) continue;  // scratch, or a weight that nobody reads
      key = {graph.actors[tensor.producer].station, {consumers.begin(), consumers.end()}, tensor.tokens_per_step, InitialTokens(tensor)};
    } else if (tensor.side == RegisterSpec::OUTBOUND) {
      const RankActor& send = graph.actors[tensor.producer];
      const int64_t stage = plan_.mesh.StageOf(tensor.peer);
      Station fill{send.station.item, send.station.place + 1};
      Other(fill, stations_.at(send.station), stage, StationName(send)).fills = true;
      key = {send.station, {fill}, 0, 0};
    } else {
      const RankActor& fill = graph.actors[tensor.consumers[0]];
      Station send{fill.station.item, fill.station.place - 1};
      Other(send, stations_.at(fill.station), plan_.mesh.StageOf(tensor.peer), StationName(fill));
      key = {send, {fill.station}, 0, 0};
    }
    if (!local) {
      data.latency_ns = std::min(kActNsMax, costs_.LatencyNs(costs_.LevelBetween(graph.rank, tensor.peer), tensor.bytes));
    }
    // The memory of a message is at the receiver.
    if (tensor.side != RegisterSpec::OUTBOUND) data.bytes = AlignedBytes(tensor.bytes);
    auto [known, is_new] = here.emplace(key, data);
    if (is_new) continue;
    known->second.bytes = std::min(kBytesMax, known->second.bytes + data.bytes);
    known->second.latency_ns = std::max(known->second.latency_ns, data.latency_ns);
  }
  for (const auto& [key, data] : here) {
    auto [known, is_new] = registers_.emplace(key, data);
    if (is_new) continue;
    known->second.bytes = std::max(known->second.bytes, data.bytes);
    if (known->second.slots > 0) known->second.slots = std::max(known->second.slots, data.slots);
    known->second.latency_ns = std::max(known->second.latency_ns, data.latency_ns);
  }
}

// The far end of an exchange, on a rank that is perhaps never looked at.
StationGraphBuilder::StationData& StationGraphBuilder::Other(const Station& station, const StationData& known, int64_t stage,
                                                             const std::string& name) {
  auto [other, is_new] = stations_.try_emplace(station);
  if (is_new) {
    other->second.name = name;
    other->second.stage = stage;
    other->second.priority = known.priority;
    other->second.micro_batches = known.micro_batches;
    other->second.chunks = known.chunks;
  }
  return other->second;
}

void StationGraphBuilder::AddPossibleEdges() {
  std::vector<std::pair<Station, StationData>> fills;
  for (const auto& [station, data] : stations_) {
    if (data.fills) fills.emplace_back(station, data);
  }
  std::map<Station, Station> send_of;  // by fill
  for (const auto& [fill, data] : fills) {
    Station send{fill.item, fill.place - 1};
    Other(send, data, data.stage, data.name);
    registers_.try_emplace({send, {fill}, 0, 0}, RegisterData{data.name, 0, kSlotsUnbounded, 0});
    send_of[fill] = send;
  }
  // What a fill reads of its own rank, other ranks may send.
  std::map<RegisterFamily, RegisterData> more;
  std::map<int, std::set<int>> follows;  // items whose stations read what another item's made
  for (const auto& [key, data] : registers_) {
    std::set<Station> readers;
    for (const Station& consumer : key.consumers) {
      follows[key.producer.item].insert(consumer.item);
      auto send = send_of.find(consumer);
      if (key.tokens > 0 && send != send_of.end() && send->second != key.producer) readers.insert(send->second);
    }
    for (const Station& consumer : key.consumers) readers.erase(consumer);
    if (!readers.empty()) more.emplace(RegisterFamily{key.producer, {readers.begin(), readers.end()}, key.tokens, key.initial_tokens}, RegisterData{data.name, 0, data.slots, 0});
  }
  registers_.insert(more.begin(), more.end());
  // An item that makes a value comes before one that reads it, even if nobody was seen to do both.
  std::vector<int> maker(plan_.module.values.size(), -1);
  for (size_t i = 0; i < plan_.module.items.size(); ++i) {
    const ProgramItem& item = plan_.module.items[i];
    for (int input : item.inputs) {
      if (input < 0 || maker[input] < 0 || follows[maker[input]].count(static_cast<int>(i)) > 0) continue;
      auto last = stations_.lower_bound({maker[input] + 1, 0});
      auto first = stations_.lower_bound({static_cast<int>(i), 0});
      if (last == stations_.begin() || first == stations_.end() || first->first.item != static_cast<int>(i)) continue;
      --last;
      if (last->first.item != maker[input]) continue;
      const int64_t tokens = std::min(last->second.micro_batches, first->second.micro_batches);
      registers_.try_emplace({last->first, {first->first}, tokens, plan_.module.values[input].delay}, RegisterData{plan_.module.values[input].name, 0, kSlotsUnbounded, 0});
    }
    for (int output : item.outputs) maker[output] = static_cast<int>(i);
  }
}

// Uneven shards are of different numbers of chunks: a station has the most that either end of its messages has.
void StationGraphBuilder::EqualizeChunks() {
  for (const auto& [key, data] : registers_) {
    if (key.tokens > 0) continue;
    StationData& send = stations_.at(key.producer);
    StationData& fill = stations_.at(key.consumers[0]);
    send.chunks = fill.chunks = std::max(send.chunks, fill.chunks);
  }
}

StationGraph StationGraphBuilder::Finish(Ranks ranks) {
  if (ranks == Ranks::kSome) AddPossibleEdges();
  EqualizeChunks();
  StationGraph out;
  std::map<Station, int> index;
  for (const auto& [station, data] : stations_) {
    index[station] = static_cast<int>(out.stations.size());
    out.stations.push_back(station);
    out.passes.push_back(data.pass);
    TimedGraph::Actor actor;
    actor.name = data.name;
    actor.acts = data.micro_batches * data.chunks;
    actor.chunks = data.chunks;
    actor.time_ns = data.act_ns;
    actor.device = static_cast<int>(data.stage);
    actor.priority = data.priority;
    out.timed.actors.push_back(std::move(actor));
  }
  for (const auto& [key, data] : registers_) {
    TimedGraph::Register entry;
    auto port = [&](const Station& station) {
      const int actor = index.at(station);
      return TimedGraph::Port{actor, key.tokens > 0 ? out.timed.actors[actor].acts / key.tokens : 1, 1};
    };
    entry.name = data.name;
    entry.producer = port(key.producer);
    for (const Station& consumer : key.consumers) entry.consumers.push_back(port(consumer));
    entry.initial_tokens = key.initial_tokens;
    entry.slots = data.slots;
    entry.bytes = data.bytes;
    entry.latency_ns = data.latency_ns;
    out.timed.registers.push_back(std::move(entry));
    out.families.push_back(key);
  }
  return out;
}

}  // namespace weir::compiler
