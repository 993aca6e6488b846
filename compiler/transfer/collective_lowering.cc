#include "compiler/transfer/collective_lowering.h"

#include <algorithm>
#include <utility>

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
  std::vector<TensorSlice> parts;
  for (const RankId member : collective->ranks) {
    parts.push_back(collective->kind == Collective::Kind::kAllGather
                        ? sbp::StepInput(type, step, places, member)
                        : sbp::StepOutput(type, step, places, member));
  }
  if (!LiesInOrder(collective->kind == Collective::Kind::kAllGather ? out : in, parts))
    return std::nullopt;
  return collective;
}

}  // namespace

bool CollectiveLowering::Fits(const MovedTensors& moved, size_t k) {
  const std::vector<RankId>* group = nullptr;
  std::optional<Collective> first;
  for (size_t i = 0; i < moved.types().size(); ++i) {
    const sbp::BoxingStep& step = moved.steps()[i][k];
    if (!KindOf(step).has_value()) return false;
    for (const RankId rank : moved.places().ranks(step.from.place)) {
      std::optional<Collective> own = CollectiveOf(moved.types()[i], step, moved.places(), rank);
      if (!own.has_value()) return false;
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

CollectiveLowering::CollectiveLowering(const MovedTensors& moved, size_t k, TransferOptions options)
    : types_(moved.types()), options_(std::move(options)), places_(moved.places()) {
  for (const std::vector<sbp::BoxingStep>& steps : moved.steps()) steps_.push_back(steps[k]);
}

TransferSite CollectiveLowering::Site(const Station& first) const {
  return {{{first, TransferRole::kMeets, first}}};
}

int64_t CollectiveLowering::TotalBytes() const {
  int64_t bytes = 0;
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
    const auto own = std::find(collective.ranks.begin(), collective.ranks.end(), rank);
    const auto place = static_cast<size_t>(own - collective.ranks.begin());
    bytes[collective.ranks[(place + 1) % collective.ranks.size()]] +=
        collective.kind == Collective::Kind::kAllReduce ? 2 * (size - 1) * in / size
                                                        : (size - 1) * std::min(in, out);
  }
  return bytes;
}

RankActor CollectiveLowering::MakeActor(const TransferSite& site,
                                        const std::vector<TensorId>& inputs,
                                        RankBuilder* builder) const {
  RankActor actor = builder->MakeActor(options_.name);
  actor.station = site.ends[0].station;
  actor.role = site.ends[0].role;
  actor.site = static_cast<int>(builder->graph().sites.size()) - 1;
  actor.kind = proto::ActorSpec::COLLECTIVE;
  actor.phase = PhaseKind::kBoxing;
  actor.note = options_.note;
  for (TensorId input : inputs) {
    if (std::find(actor.inputs.begin(), actor.inputs.end(), input) == actor.inputs.end())
      actor.inputs.push_back(input);
  }
  const Frequency frequency = builder->item().frequency;
  for (size_t i = 0; i < types_.size(); ++i) {
    actor.outputs.push_back(builder->AddTensor(
        options_.name, sbp::StepOutput(types_[i], steps_[i], places_, builder->rank()).bytes(),
        builder->Tokens(frequency), builder->Every(frequency)));
  }
  return actor;
}

std::vector<TensorId> CollectiveLowering::LowerForRank(const TransferSite& site,
                                                       const std::vector<TensorId>& inputs,
                                                       RankBuilder* builder) const {
  RankActor actor = MakeActor(site, inputs, builder);
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
  actor.operands = inputs;
  actor.operands.insert(actor.operands.end(), actor.outputs.begin(), actor.outputs.end());
  std::vector<TensorId> outputs = actor.outputs;
  builder->AddActor(std::move(actor));
  return outputs;
}

std::vector<TensorId> CollectiveLowering::LowerForStage(const TransferSite& site,
                                                        const std::vector<TensorId>& inputs,
                                                        RankBuilder* builder) const {
  RankActor actor = MakeActor(site, inputs, builder);
  std::vector<TensorId> outputs = actor.outputs;
  builder->AddActor(std::move(actor));
  return outputs;
}

}  // namespace weir::compiler
