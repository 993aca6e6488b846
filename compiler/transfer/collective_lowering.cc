#include "compiler/transfer/collective_lowering.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/rect.h"

namespace weir::compiler {
namespace {

// Returns what the step is as a collective, without its ranks, if the layouts allow one.
std::optional<Collective> KindOf(const sbp::BoxingStep& step) {
  Collective collective;
  switch (step.method) {
    case sbp::BoxingMethod::kAllReduce: collective.kind = Collective::Kind::kAllReduce; break;
    case sbp::BoxingMethod::kReduceScatter:
      collective.kind = Collective::Kind::kReduceScatter;
      break;
    case sbp::BoxingMethod::kAllGather: collective.kind = Collective::Kind::kAllGather; break;
    case sbp::BoxingMethod::kAllToAll: collective.kind = Collective::Kind::kAllToAll; break;
    default: return std::nullopt;
  }
  if (step.from.place != step.to.place) return std::nullopt;
  return collective;
}

// Returns the mesh axes whose layouts change.
std::vector<int> ChangedAxes(const sbp::BoxingStep& step) {
  std::vector<int> axes;
  for (size_t axis = 0; axis < step.from.layout.size(); ++axis) {
    if (step.from.layout[axis] != step.to.layout[axis]) axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

// Returns whether the axis changes as the kind says, and which combiner its partial values have.
bool Changes(Collective::Kind kind, const sbp::Sbp& from, const sbp::Sbp& to, Combiner* combiner) {
  if (kind == Collective::Kind::kAllGather) return from.is_split() && to.is_broadcast();
  if (kind == Collective::Kind::kAllToAll) return from.is_split() && to.is_split();
  if (!from.is_partial()) return false;
  *combiner = from.combiner;
  return kind == Collective::Kind::kAllReduce ? to.is_broadcast() : to.is_split();
}

// Returns the ranks that differ from `rank` in the changed axes alone, row-major over these axes.
std::vector<RankId> GroupOf(const std::vector<int>& axes, const sbp::Places& places, RankId rank) {
  const sbp::Coords own = places.CoordsOf(rank);
  std::vector<std::pair<sbp::Coords, RankId>> members;
  for (const RankId other : places.ranks(places.PlaceOf(rank))) {
    sbp::Coords coords = places.CoordsOf(other), masked = coords;
    for (int axis : axes) masked[axis] = own[axis];
    if (masked == own) members.emplace_back(std::move(coords), other);
  }
  std::sort(members.begin(), members.end());
  std::vector<RankId> ranks;
  for (const auto& [coords, member] : members) ranks.push_back(member);
  return ranks;
}

// Returns whether the shards of `parts` lie in `whole` one after another, each in one piece.
bool LiesInOrder(const TensorSlice& whole, const std::vector<TensorSlice>& parts) {
  size_t axis = 0;  // the first that has several elements
  while (axis < whole.shape.size() && whole.shape[axis] == 1) ++axis;
  if (axis == whole.shape.size()) return false;
  int64_t next = whole.offset[axis];
  for (const TensorSlice& part : parts) {
    if (part.shape != parts[0].shape) return false;
    for (size_t d = 0; d < whole.shape.size(); ++d) {
      const bool same = part.shape[d] == whole.shape[d] && part.offset[d] == whole.offset[d];
      if (d != axis && !same) return false;
    }
    if (part.offset[axis] != next) return false;
    next += part.shape[axis];
  }
  return next == whole.offset[axis] + whole.shape[axis];
}

// The blocks of a rank in an all-to-all: block i is what goes to member i of the group, or what has
// come from it, as a rectangle of the rank's shard.
std::vector<Rect> BlocksOf(const TensorSlice& shard, const std::vector<TensorSlice>& others) {
  std::vector<Rect> blocks;
  for (const TensorSlice& other : others) {
    Rect block = Intersect(RectOf(shard), RectOf(other));
    for (size_t d = 0; d < block.begin.size(); ++d) {
      block.begin[d] -= shard.offset[d];
      block.end[d] -= shard.offset[d];
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

// Returns whether the blocks are as large as each other, and together all of the shard.
bool AreEvenBlocks(const TensorSlice& shard, const std::vector<Rect>& blocks) {
  int64_t elements = 0;
  for (const Rect& block : blocks) {
    if (block.volume() < 1 || block.shape() != blocks[0].shape()) return false;
    elements += block.volume();
  }
  return elements == shard.num_elements();
}

// Returns whether the blocks lie in the shard one after another, each in one piece.
bool LieInOrder(const TensorSlice& shard, const std::vector<Rect>& blocks) {
  std::vector<TensorSlice> parts;
  for (const Rect& block : blocks) {
    TensorSlice part = shard;
    part.shape = block.shape();
    for (size_t d = 0; d < part.offset.size(); ++d) part.offset[d] += block.begin[d];
    parts.push_back(std::move(part));
  }
  return LiesInOrder(shard, parts);
}

// The shards of the members of a group before and after a step.
struct GroupShards {
  std::vector<TensorSlice> before, after;
};
GroupShards ShardsOf(const sbp::TensorType& type, const sbp::BoxingStep& step,
                     const sbp::Places& places, const std::vector<RankId>& group) {
  GroupShards shards;
  for (const RankId member : group) {
    shards.before.push_back(sbp::StepInput(type, step, places, member));
    shards.after.push_back(sbp::StepOutput(type, step, places, member));
  }
  return shards;
}

// Returns the operation of the rank's group for one tensor, if there is one.
std::optional<Collective> CollectiveOf(const sbp::TensorType& type, const sbp::BoxingStep& step,
                                       const sbp::Places& places, RankId rank) {
  std::optional<Collective> collective = KindOf(step);
  if (!collective.has_value()) return std::nullopt;
  const std::vector<int> axes = ChangedAxes(step);
  std::optional<Combiner> combiner;
  for (int axis : axes) {
    Combiner of_axis = Combiner::kSum;
    if (!Changes(collective->kind, step.from.layout[axis], step.to.layout[axis], &of_axis))
      return std::nullopt;
    if (combiner.value_or(of_axis) != of_axis) return std::nullopt;
    combiner = of_axis;
  }
  collective->combiner = combiner.value_or(Combiner::kSum);
  collective->ranks = GroupOf(axes, places, rank);
  if (FindFlaw(Transfer(*collective)).has_value()) return std::nullopt;
  const TensorSlice in = sbp::StepInput(type, step, places, rank),
                    out = sbp::StepOutput(type, step, places, rank);
  if (in.num_elements() < 1 || FindFlawWith(*collective, in.num_elements(), out.num_elements()))
    return std::nullopt;
  if (collective->kind == Collective::Kind::kAllReduce) return collective;
  const GroupShards shards = ShardsOf(type, step, places, collective->ranks);
  bool fits = false;
  switch (collective->kind) {
    case Collective::Kind::kAllReduce: break;
    case Collective::Kind::kReduceScatter: fits = LiesInOrder(in, shards.after); break;
    case Collective::Kind::kAllGather: fits = LiesInOrder(out, shards.before); break;
    case Collective::Kind::kAllToAll:
      fits = AreEvenBlocks(in, BlocksOf(in, shards.after)) &&
             AreEvenBlocks(out, BlocksOf(out, shards.before));
      break;
  }
  if (!fits) return std::nullopt;
  return collective;
}

// Returns whether the shards of the rank are as large as those of the first rank of the place.
bool HasShardsOfFirst(const sbp::TensorType& type, const sbp::BoxingStep& step,
                      const sbp::Places& places, RankId rank) {
  const RankId first = places.RankAt(step.from.place, 0);
  return sbp::StepInput(type, step, places, rank).shape ==
             sbp::StepInput(type, step, places, first).shape &&
         sbp::StepOutput(type, step, places, rank).shape ==
             sbp::StepOutput(type, step, places, first).shape;
}

}  // namespace

bool CollectiveLowering::Fits(const MovedTensors& moved, size_t k) {
  const std::vector<RankId>* group = nullptr;
  std::optional<Collective> first;
  for (size_t i = 0; i < moved.types().size(); ++i) {
    const sbp::BoxingStep& step = moved.steps()[i][k];
    if (!KindOf(step).has_value() || step.method != moved.steps()[0][k].method) return false;
    for (const RankId rank : moved.places().ranks(step.from.place)) {
      std::optional<Collective> own = CollectiveOf(moved.types()[i], step, moved.places(), rank);
      if (!own.has_value()) return false;
      // All ranks of the stage pack, or none does.
      if (own->kind == Collective::Kind::kAllToAll &&
          !HasShardsOfFirst(moved.types()[i], step, moved.places(), rank))
        return false;
      if (rank != moved.places().RankAt(step.from.place, 0)) continue;
      if (group != nullptr && own->ranks != *group) return false;  // an actor has one group
      if (group == nullptr) {
        first = std::move(own);
        group = &first->ranks;
      }
    }
  }
  return group != nullptr;
}

int64_t CollectiveLowering::BytesOf(const MovedTensors& moved, size_t k) {
  int64_t bytes = 0;
  for (size_t i = 0; i < moved.types().size(); ++i) {
    const sbp::BoxingStep& step = moved.steps()[i][k];
    const RankId first = moved.places().RankAt(step.from.place, 0);
    bytes += std::max(sbp::StepInput(moved.types()[i], step, moved.places(), first).bytes(),
                      sbp::StepOutput(moved.types()[i], step, moved.places(), first).bytes());
  }
  return bytes;
}

CollectiveLowering::CollectiveLowering(const MovedTensors& moved, size_t k, TransferOptions options)
    : types_(moved.types()), options_(std::move(options)), places_(moved.places()) {
  for (const std::vector<sbp::BoxingStep>& steps : moved.steps()) steps_.push_back(steps[k]);
}

TransferSite CollectiveLowering::Site(const Station& first) const {
  const Station second{first.item, first.index + 1}, third{first.item, first.index + 2};
  if (!is_all_to_all()) return {{{first, TransferRole::kMeets, first}}};
  return {{{first, TransferRole::kNone, first},
           {second, TransferRole::kMeets, second},
           {third, TransferRole::kNone, third}}};
}

int64_t CollectiveLowering::TotalBytes() const {
  int64_t bytes = 0;
  if (steps_[0].method == sbp::BoxingMethod::kAllReduce) {
    for (const RankId rank : places_.ranks(steps_[0].from.place)) {
      for (const auto& [peer, sent] : BytesSent(rank)) bytes += sent;
    }
    return bytes;
  }
  for (size_t i = 0; i < types_.size(); ++i)
    bytes += weir::sbp::TotalBytes(types_[i], {steps_[i]}, places_);
  return bytes;
}

std::map<RankId, int64_t> CollectiveLowering::BytesSent(RankId rank) const {
  std::map<RankId, int64_t> bytes;
  if (places_.PlaceOf(rank) != steps_[0].from.place) return bytes;
  for (size_t i = 0; i < types_.size(); ++i) {
    const Collective collective = *CollectiveOf(types_[i], steps_[i], places_, rank);
    const auto size = static_cast<int64_t>(collective.ranks.size());
    const int64_t in = sbp::StepInput(types_[i], steps_[i], places_, rank).bytes(),
                  out = sbp::StepOutput(types_[i], steps_[i], places_, rank).bytes();
    if (collective.kind == Collective::Kind::kAllToAll) {
      for (const RankId peer : collective.ranks) {
        if (peer != rank) bytes[peer] += in / size;
      }
      continue;
    }
    const auto own = std::find(collective.ranks.begin(), collective.ranks.end(), rank);
    const auto place = static_cast<size_t>(own - collective.ranks.begin());
    bytes[collective.ranks[(place + 1) % collective.ranks.size()]] +=
        collective.kind == Collective::Kind::kAllReduce ? 2 * (size - 1) * in / size
                                                        : (size - 1) * std::min(in, out);
  }
  return bytes;
}

RankActor CollectiveLowering::MakeActor(const TransferSite::End& end, const std::string& name,
                                        const std::vector<TensorId>& inputs,
                                        RankBuilder* builder) const {
  RankActor actor = builder->MakeActor(name);
  actor.station = end.station;
  actor.role = end.role;
  if (end.role != TransferRole::kNone)
    actor.site = static_cast<int>(builder->graph().sites.size()) - 1;
  actor.phase = PhaseKind::kBoxing;
  actor.note = options_.note;
  for (TensorId input : inputs) {
    if (std::find(actor.inputs.begin(), actor.inputs.end(), input) == actor.inputs.end())
      actor.inputs.push_back(input);
  }
  return actor;
}

// Tensor i after the step has as many bytes as each of its forms in between.
TensorId CollectiveLowering::AddOutput(const std::string& name, size_t i,
                                       RankBuilder* builder) const {
  const Frequency frequency = builder->item().frequency;
  return builder->AddTensor(name,
                            sbp::StepOutput(types_[i], steps_[i], places_, builder->rank()).bytes(),
                            builder->Tokens(frequency), builder->Every(frequency));
}

std::shared_ptr<const KernelChain> CollectiveLowering::MakeBlockChain(Side side,
                                                                      RankId rank) const {
  KernelChain chain;
  for (size_t i = 0; i < types_.size(); ++i) {
    const Collective collective = *CollectiveOf(types_[i], steps_[i], places_, rank);
    const GroupShards shards = ShardsOf(types_[i], steps_[i], places_, collective.ranks);
    const TensorSlice shard = side == Side::kPack
                                  ? sbp::StepInput(types_[i], steps_[i], places_, rank)
                                  : sbp::StepOutput(types_[i], steps_[i], places_, rank);
    const std::vector<Rect> blocks =
        BlocksOf(shard, side == Side::kPack ? shards.after : shards.before);
    if (LieInOrder(shard, blocks)) continue;
    // The blocks lie one after another along the first axis.
    Shape row = blocks[0].shape();
    ExchangeFill fill;
    fill.chunk_elements = shard.num_elements();
    fill.num_own = 1;
    for (size_t k = 0; k < blocks.size(); ++k) {
      Rect packed{Shape(row.size(), 0), row};
      packed.begin[0] = static_cast<int64_t>(k) * row[0];
      packed.end[0] = packed.begin[0] + row[0];
      ExchangeRegion& region = fill.regions.emplace_back();
      region.target = side == Side::kPack ? packed : blocks[k];
      region.sources = {{ExchangeSource::kOwn, side == Side::kPack ? blocks[k] : packed}};
    }
    row[0] *= static_cast<int64_t>(blocks.size());
    const TensorSlice packed = TensorSlice::Whole(shard.dtype, row);
    RankKernel& kernel = chain.kernels.emplace_back();
    kernel.op = "exchange_fill";
    kernel.transfer = std::move(fill);
    kernel.inputs = {
        {RankOperand::kTensor, static_cast<int>(i), side == Side::kPack ? shard : packed}};
    kernel.outputs = {{RankOperand::kTensor, static_cast<int>(types_.size() + i),
                       side == Side::kPack ? packed : shard}};
  }
  return MakeChain(std::move(chain));
}

std::vector<TensorId> CollectiveLowering::AddBlockActor(Side side, LoweredFor lowered_for,
                                                        const TransferSite& site,
                                                        const std::vector<TensorId>& inputs,
                                                        RankBuilder* builder) const {
  std::shared_ptr<const KernelChain> chain = MakeBlockChain(side, builder->rank());
  if (chain->kernels.empty()) return inputs;
  const std::string name = absl::StrCat(options_.name, side == Side::kPack ? ": pack" : ": unpack");
  std::vector<TensorId> outputs = inputs, read, made;
  for (const RankKernel& kernel : chain->kernels) {
    const auto i = static_cast<size_t>(kernel.inputs[0].index);
    read.push_back(inputs[i]);
    outputs[i] = AddOutput(name, i, builder);
    made.push_back(outputs[i]);
  }
  RankActor actor =
      MakeActor(side == Side::kPack ? site.ends.front() : site.ends.back(), name, read, builder);
  actor.outputs = std::move(made);
  if (lowered_for == LoweredFor::kRank) {
    actor.program = name;
    actor.chain = std::move(chain);
    actor.operands = inputs;
    actor.operands.insert(actor.operands.end(), outputs.begin(), outputs.end());
  }
  builder->AddActor(std::move(actor));
  return outputs;
}

std::vector<TensorId> CollectiveLowering::Lower(LoweredFor lowered_for, const TransferSite& site,
                                                const std::vector<TensorId>& inputs,
                                                RankBuilder* builder) const {
  std::vector<TensorId> tensors = inputs;
  if (is_all_to_all()) tensors = AddBlockActor(Side::kPack, lowered_for, site, tensors, builder);
  RankActor actor = MakeActor(site.ends[is_all_to_all() ? 1 : 0], options_.name, tensors, builder);
  actor.kind = proto::ActorSpec::COLLECTIVE;
  for (size_t i = 0; i < types_.size(); ++i)
    actor.outputs.push_back(AddOutput(options_.name, i, builder));
  std::vector<TensorId> outputs = actor.outputs;
  if (lowered_for == LoweredFor::kRank) {
    actor.program = options_.name;
    KernelChain chain;
    for (size_t i = 0; i < types_.size(); ++i) {
      RankKernel& kernel = chain.kernels.emplace_back();
      kernel.op = "collective";
      kernel.transfer = *CollectiveOf(types_[i], steps_[i], places_, builder->rank());
      kernel.inputs = {{RankOperand::kTensor, static_cast<int>(i),
                        sbp::StepInput(types_[i], steps_[i], places_, builder->rank())}};
      kernel.outputs = {{RankOperand::kTensor, static_cast<int>(types_.size() + i),
                         sbp::StepOutput(types_[i], steps_[i], places_, builder->rank())}};
    }
    actor.chain = MakeChain(std::move(chain));
    actor.operands = tensors;
    actor.operands.insert(actor.operands.end(), outputs.begin(), outputs.end());
  }
  builder->AddActor(std::move(actor));
  if (is_all_to_all()) return AddBlockActor(Side::kUnpack, lowered_for, site, outputs, builder);
  return outputs;
}

std::vector<TensorId> CollectiveLowering::LowerForRank(const TransferSite& site,
                                                       const std::vector<TensorId>& inputs,
                                                       RankBuilder* builder) const {
  return Lower(LoweredFor::kRank, site, inputs, builder);
}

std::vector<TensorId> CollectiveLowering::LowerForStage(const TransferSite& site,
                                                        const std::vector<TensorId>& inputs,
                                                        RankBuilder* builder) const {
  return Lower(LoweredFor::kStage, site, inputs, builder);
}

}  // namespace weir::compiler
