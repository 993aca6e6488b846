#include "compiler/ir/rank_builder.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace weir::compiler {

std::shared_ptr<const KernelChain> MakeChain(KernelChain chain) {
  absl::flat_hash_set<int> seen;
  for (const RankKernel& kernel : chain.kernels) {
    for (const RankOperand& input : kernel.inputs) {
      if (input.kind == RankOperand::kTensor && seen.insert(input.index).second)
        chain.reads.push_back(input.index);
    }
    for (const RankOperand& output : kernel.outputs)
      chain.writes_state |= output.kind == RankOperand::kState;
  }
  return std::make_shared<const KernelChain>(std::move(chain));
}

RankBuilder::RankBuilder(const LogicalPlan& plan, RankId rank)
    : plan_(plan), coords_(plan.places.CoordsOf(rank)) {
  graph_.rank = rank;
  graph_.stage = plan.places.PlaceOf(rank);
  FindWaves();
}

void RankBuilder::BeginItem(int index) {
  item_ = index;
  index_ = 0;
}

TensorId RankBuilder::AddTensor(const std::string& name, int64_t bytes, int64_t tokens,
                                int64_t every) {
  RankTensor tensor;
  tensor.every = every;
  tensor.name = name;
  tensor.bytes = bytes;
  tensor.tokens_per_step = tokens;
  const TensorId id = graph_.tensors.next_id();
  graph_.tensors.push_back(std::move(tensor));
  return id;
}

RankActor RankBuilder::MakeActor(const std::string& name) const {
  RankActor actor;
  actor.name = name;
  actor.station = station();
  actor.phase = item().phase;
  actor.wave = waves_[item_];
  actor.part = item().part;
  actor.instance = item().instance;
  actor.acts_per_step = Tokens(item().frequency);
  actor.every = Every(item().frequency);
  actor.every_phase = item().frequency == Frequency::kUpdate ? plan_.updates.phase : 0;
  actor.function = item().name;
  return actor;
}

ActorId RankBuilder::AddActor(RankActor actor) {
  const ActorId id = graph_.actors.next_id();
  for (size_t i = 0; i < actor.outputs.size(); ++i) {
    graph_.tensors[actor.outputs[i]].producer = id;
    graph_.tensors[actor.outputs[i]].output = static_cast<int>(i);
  }
  graph_.actors.push_back(std::move(actor));
  return id;
}

void RankBuilder::CollectInputs(RankActor* actor) {
  absl::flat_hash_set<TensorId> seen(actor->outputs.begin(), actor->outputs.end());
  actor->inputs.reserve(actor->chain->reads.size());
  for (int operand : actor->chain->reads) {
    const TensorId tensor = actor->operands[operand];
    if (seen.insert(tensor).second) actor->inputs.push_back(tensor);
  }
}

void RankBuilder::FindWaves() {
  const Module& module = plan_.module;
  waves_.assign(module.items.size(), Wave::kNone);
  std::vector<int> producer(module.values.size(), -1);
  for (size_t i = 0; i < module.items.size(); ++i) {
    for (int output : module.items[i].outputs) producer[output] = static_cast<int>(i);
  }
  for (size_t i = 0; i < module.items.size(); ++i) {
    const ProgramItem& item = module.items[i];
    if (item.phase == PhaseKind::kForward || item.phase == PhaseKind::kData)
      waves_[i] = Wave::kForward;
    if (item.phase == PhaseKind::kBackward) waves_[i] = Wave::kBackward;
    if (item.phase == PhaseKind::kWeightGradient) waves_[i] = Wave::kWeightGradient;
    if (item.kind == ItemKind::kBoxing && item.frequency == Frequency::kMicroBatch) {
      int from = producer[item.inputs[0]];
      waves_[i] = from >= 0 && from < static_cast<int>(i) ? waves_[from] : Wave::kNone;
    }
  }
  FindTransfersToUpdates();
}

// A transfer carries gradients to the update if only the update, or such a transfer, reads its
// result, and the update has not made what the transfer carries. Norms of gradients, which the
// update makes, are for other stages and must not wait.
void RankBuilder::FindTransfersToUpdates() {
  const Module& module = plan_.module;
  const auto is_transfer = [&](size_t i) {
    return module.items[i].kind == ItemKind::kBoxing && waves_[i] == Wave::kNone;
  };
  std::vector<bool> is_read(module.values.size()), is_read_elsewhere(module.values.size());
  std::vector<bool> is_for_update(module.items.size());
  for (size_t i = module.items.size(); i-- > 0;) {
    const ProgramItem& item = module.items[i];
    is_for_update[i] =
        item.phase == PhaseKind::kUpdate ||
        (is_transfer(i) && std::all_of(item.outputs.begin(), item.outputs.end(), [&](int output) {
           return is_read[output] && !is_read_elsewhere[output];
         }));
    for (int input : item.inputs) {
      if (input < 0) continue;
      is_read[input] = true;
      if (!is_for_update[i]) is_read_elsewhere[input] = true;
    }
  }
  std::vector<bool> is_made_by_update(module.values.size());
  for (size_t i = 0; i < module.items.size(); ++i) {
    const ProgramItem& item = module.items[i];
    const bool is_of_update =
        item.phase == PhaseKind::kUpdate ||
        (is_transfer(i) && std::any_of(item.inputs.begin(), item.inputs.end(), [&](int input) {
           return input >= 0 && is_made_by_update[input];
         }));
    for (int output : item.outputs) is_made_by_update[output] = is_of_update;
    if (is_transfer(i) && is_for_update[i] && !is_of_update) waves_[i] = Wave::kUpdate;
  }
}

}  // namespace weir::compiler
