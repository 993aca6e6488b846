#include "compiler/rhythm/station_graph.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "compiler/lower/schedule_slots.h"
#include "compiler/lower/slot_policy.h"
#include "runtime/base/alignment.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/transfer/message_size.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::compiler {
namespace {

using plan_limits::kBytesMax;

// The limit keeps sums of fantastic sizes from overflowing before the plan is refused.
int64_t AlignedBytes(int64_t bytes) {
  return bytes < 0 || bytes > kBytesMax ? kBytesMax : AlignUp(bytes);
}

// Returns the time in which the bytes of a collective pass, as if each rank sent its part to the
// next rank of a ring. Messages of exchanges have the same price.
int64_t LinkNs(const RankKernel& kernel, const CostModel& costs) {
  const auto* collective = std::get_if<Collective>(&kernel.transfer);
  if (collective == nullptr) return 0;
  LinkLevel level = LinkLevel::kWithinHost;
  for (const RankId rank : collective->ranks) {
    if (costs.LevelBetween(collective->ranks[0], rank) == LinkLevel::kBetweenHosts)
      level = LinkLevel::kBetweenHosts;
  }
  const int64_t shard =
      AlignedBytes(std::min(kernel.inputs[0].slice.bytes(), kernel.outputs[0].slice.bytes()));
  const auto bytes =
      static_cast<int64_t>(std::min(RingBytes(*collective, shard), static_cast<double>(kBytesMax)));
  return std::min(kActNsMax, costs.LatencyNs(level, bytes));
}

}  // namespace

int64_t ActNs(const RankActor& actor, const CostModel& costs) {
  int64_t ns = costs.ActNs();
  if (actor.chain == nullptr) return std::clamp<int64_t>(ns, 1, kActNsMax);
  for (const RankKernel& kernel : actor.chain->kernels) {
    KernelUse use{kernel.op, kernel.attrs, {}, {}};
    use.outputs.reserve(kernel.outputs.size());
    for (const RankOperand& output : kernel.outputs) use.outputs.push_back(output.slice);
    const TransferTraffic traffic = TransferTrafficOf(kernel.op);
    if (traffic == TransferTraffic::kMessage) {
      use.outputs[0] = TensorSlice::Whole(use.outputs[0].dtype,
                                          {MeanMessageElements(kernel.transfer, actor.chunks)});
    }
    // A transfer reads as many bytes as it writes, whatever the size of the shard around them.
    if (traffic != TransferTraffic::kNone) {
      use.inputs = use.outputs;
    } else {
      use.inputs.reserve(kernel.inputs.size());
      for (const RankOperand& input : kernel.inputs) use.inputs.push_back(input.slice);
    }
    ns += LinkNs(kernel, costs);
    const int64_t whole = costs.KernelNs(use);
    ns += traffic == TransferTraffic::kChunk ? whole / std::max<int64_t>(1, actor.chunks) : whole;
  }
  return std::clamp<int64_t>(ns, 1, kActNsMax);
}

StationGraphBuilder::StationGraphBuilder(const LogicalPlan& plan, const CostModel& costs)
    : plan_(plan), costs_(costs) {
  for (const StageShape& shape : plan.stages) AddStations(shape.graph);
  for (const StageShape& shape : plan.stages) AddRegisters(shape.graph, nullptr);
}

void StationGraphBuilder::AddStations(const RankGraph& shape) {
  for (const RankActor& actor : shape.actors) {
    StationData& data = stations_[actor.station];
    data.name = actor.name;
    data.stage = shape.stage;
    data.act_ns = std::clamp<int64_t>(costs_.ActNs(), 1, kActNsMax);
    data.priority = SchedulePriority(plan_, shape, actor);
    data.micro_batches = actor.micro_batches_per_step();
    // Both ends of a message have the same number of chunks.
    data.chunks = actor.chunks;
    data.pass = {ComputedPass(actor), actor.part, SchedulePrecedence(plan_, actor)};
  }
}

void StationGraphBuilder::Add(const RankGraph& graph, const std::vector<StageTwin>& twins) {
  std::map<Station, Load> loads;
  // Actors with one chain take as long, if they have as many chunks.
  absl::flat_hash_map<std::pair<const KernelChain*, int64_t>, int64_t> act_ns;
  for (const RankActor& actor : graph.actors) {
    Load& load = loads[actor.station];
    const auto [known, is_new] = act_ns.emplace(std::pair(actor.chain.get(), actor.chunks), 0);
    if (is_new) known->second = ActNs(actor, costs_);
    load.ns += static_cast<double>(known->second) * static_cast<double>(actor.chunks);
    load.chunks = std::max(load.chunks, actor.chunks);
  }
  for (const StageTwin& twin : twins) {
    AddLoads(loads, twin);
    AddRegisters(graph, &twin);
  }
}

void StationGraphBuilder::AddLoads(const std::map<Station, Load>& loads, const StageTwin& twin) {
  for (const auto& [station, load] : loads) {
    const auto known = stations_.find(twin.Of(station));
    if (known == stations_.end())
      continue;  // a fault of the shape, which the rank's own check finds
    StationData& data = known->second;
    data.act_ns = std::clamp<int64_t>(
        static_cast<int64_t>(load.ns / static_cast<double>(load.chunks)), data.act_ns, kActNsMax);
  }
}

int64_t StationGraphBuilder::LatencyOf(const RankGraph& graph, const RankTensor& message,
                                       const StageTwin& twin) const {
  const ActorId actor = message.producer.has_value() ? message.producer : message.consumers[0];
  const RankId rank = plan_.places.RankAt(twin.stage, plan_.places.DeviceOf(graph.rank));
  const RankId peer = twin.PeerOf(plan_.places, graph.actors[actor].station.item, message.peer);
  return std::min(kActNsMax, costs_.LatencyNs(costs_.LevelBetween(rank, peer), message.bytes));
}

void StationGraphBuilder::AddRegisters(const RankGraph& graph, const StageTwin* twin) {
  struct HereData {
    const RankTensor* first = nullptr;  // of the family
    int64_t bytes = 0;
    int64_t latency_ns = 0;
  };
  std::map<RegisterFamily, HereData> here;
  for (const RankTensor& tensor : graph.tensors) {
    RegisterFamily key;
    const bool local = tensor.side == proto::RegisterSpec::LOCAL;
    if (!tensor.producer.has_value() && local) continue;  // of another stage
    if (tensor.paces)
      continue;  // the messages of the transfer give the same waits, and a latency besides
    int64_t bytes = 0, latency_ns = 0;
    if (local) {
      if (tensor.consumers.empty()) continue;  // scratch, or a weight without readers
      key = {graph.actors[tensor.producer].station, tensor.readers, tensor.tokens_per_step,
             InitialTokens(tensor)};
    } else if (tensor.side == proto::RegisterSpec::OUTBOUND) {
      const RankActor& sender = graph.actors[tensor.producer];
      key = {sender.station, {graph.PeerOf(sender)}, 0, 0};
    } else {
      const RankActor& receiver = graph.actors[tensor.consumers[0]];
      key = {graph.PeerOf(receiver), {receiver.station}, 0, 0};
    }
    if (twin != nullptr) {
      key.producer = twin->Of(key.producer);
      for (Station& consumer : key.consumers) consumer = twin->Of(consumer);
      if (!local) latency_ns = LatencyOf(graph, tensor, *twin);
      // The memory of a message lies at the receiver.
      if (tensor.side != proto::RegisterSpec::OUTBOUND) bytes = AlignedBytes(tensor.bytes);
    }
    HereData& data = here[std::move(key)];
    if (data.first == nullptr) data.first = &tensor;
    data.bytes = std::min(kBytesMax, data.bytes + bytes);
    data.latency_ns = std::max(data.latency_ns, latency_ns);
  }
  for (const auto& [key, data] : here) {
    auto [known, is_new] = registers_.try_emplace(key);
    if (is_new) {
      known->second.name = data.first->name;
      known->second.slots = GivenSlots(plan_, graph, *data.first);
    }
    known->second.bytes = std::max(known->second.bytes, data.bytes);
    known->second.latency_ns = std::max(known->second.latency_ns, data.latency_ns);
  }
}

StationGraph StationGraphBuilder::Finish() {
  StationGraph out;
  std::map<Station, ActorId> actor_at;
  for (const auto& [station, data] : stations_) {
    actor_at[station] = out.stations.next_id();
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
      const ActorId actor = actor_at.at(station);
      return TimedGraph::Port{actor, key.tokens > 0 ? out.timed.actors[actor].acts / key.tokens : 1,
                              1};
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
