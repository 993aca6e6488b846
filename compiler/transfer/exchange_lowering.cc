#include "compiler/transfer/exchange_lowering.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

// A step without messages is one chunk, however large.
constexpr int64_t kOneChunk = int64_t{1} << 62;

// Describes the fill of `rank`. Own shards come first among the kernel's inputs; messages follow in
// the order of the ranks that send.
ExchangeFill DescribeFill(const sbp::RankExchange& exchange, RankId rank, size_t num_own,
                          int64_t chunk_elements) {
  std::map<RankId, int> message_of;
  for (const auto& [peer, elements] : exchange.receives)
    message_of.emplace(peer, static_cast<int>(message_of.size()));
  ExchangeFill fill;
  fill.chunk_elements = chunk_elements;
  fill.num_own = static_cast<int>(num_own);
  for (const sbp::Region& region : exchange.regions) {
    ExchangeRegion& to = fill.regions.emplace_back();
    to.tensor = region.tensor;
    to.combiner = region.combiner;
    to.target = region.dst;
    for (const sbp::RegionSource& source : region.sources) {
      if (source.from == rank) {
        to.sources.push_back({ExchangeSource::kOwn, source.src});
      } else {
        to.sources.push_back({message_of.at(source.from), {}});
      }
    }
  }
  return fill;
}

RankKernel FillKernel(const std::string& name, ExchangeFill fill, std::vector<RankOperand> inputs,
                      std::vector<RankOperand> outputs) {
  RankKernel kernel;
  kernel.op = "exchange_fill";
  kernel.name = name;
  kernel.inputs = std::move(inputs);
  kernel.outputs = std::move(outputs);
  kernel.transfer = std::move(fill);
  return kernel;
}

// A rank that had all chunks of an exchange, and not yet credit for its last ones to others, would
// begin with what comes next, and all others would wait for those chunks until that act, however
// long, is over. So the fill of a chunk waits until this rank has sent that chunk to everybody.
// Where senders and receivers have different numbers of chunks, nothing is said; a single chunk has
// its slot.
void AddPace(ActorId send, RankActor* fill, RankBuilder* builder) {
  const RankActor& sender = builder->graph().actors[send];
  if (fill->chunks == 1 || sender.chunks != fill->chunks) return;
  const TensorId pace =
      builder->AddTensor(absl::StrCat(sender.name, ": sent"), 0, fill->acts_per_step, fill->every);
  RankTensor& tensor = builder->graph().tensors[pace];
  tensor.paces = true;
  tensor.readers = {fill->station};
  tensor.producer = send;
  builder->graph().actors[send].outputs.push_back(pace);
  fill->inputs.push_back(pace);
}

}  // namespace

ExchangeLowering::ExchangeLowering(const MovedTensors& moved, size_t k, TransferOptions options,
                                   LargestShard* largest_shard, KnownExchanges* known_exchanges)
    : types_(moved.types()),
      options_(std::move(options)),
      places_(moved.places()),
      largest_shard_(largest_shard),
      known_exchanges_(known_exchanges) {
  for (const std::vector<sbp::BoxingStep>& steps : moved.steps()) steps_.push_back(steps[k]);
}

TransferSite ExchangeLowering::Site(const Station& first) const {
  const Station sends = first, fill{first.item, first.index + 1};
  return {{{sends, TransferRole::kSends, fill}, {fill, TransferRole::kReceives, sends}}};
}

int64_t ExchangeLowering::TotalBytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < types_.size(); ++i)
    bytes += weir::sbp::TotalBytes(types_[i], {steps_[i]}, places_);
  return bytes;
}

std::map<RankId, int64_t> ExchangeLowering::BytesSent(RankId rank) const {
  std::map<RankId, int64_t> bytes;
  for (const auto& [peer, pieces] : sbp::BuildExchange(types_, steps_, places_, rank).sends) {
    for (const sbp::Piece& piece : pieces)
      bytes[peer] += piece.src.volume() * SizeOf(types_[piece.tensor].dtype);
  }
  return bytes;
}

std::string ExchangeLowering::SendName(RankId receiver) const {
  return absl::StrCat(options_.name, " to rank ", receiver);
}

EdgeId ExchangeLowering::EdgeOf(RankId from, RankId to) const {
  const int64_t pair = from.value() * places_.num_ranks() + to.value();
  return EdgeId(MixKey(options_.key, static_cast<uint64_t>(pair)));
}

int64_t ExchangeLowering::element_bytes() const { return SizeOf(types_[0].dtype); }

int64_t ExchangeLowering::NumChunks(int64_t elements) const {
  return std::max<int64_t>(1, (elements + options_.chunk_elements - 1) / options_.chunk_elements);
}

RankActor ExchangeLowering::MakeActor(const TransferSite::End& end, const std::string& name,
                                      int64_t chunks, const RankBuilder& builder) const {
  RankActor actor = builder.MakeActor(name);
  actor.station = end.station;
  actor.role = end.role;
  actor.site = static_cast<int>(builder.graph().sites.size()) - 1;
  actor.kind =
      end.role == TransferRole::kSends ? proto::ActorSpec::SEND : proto::ActorSpec::COMPUTE;
  actor.phase = PhaseKind::kBoxing;
  actor.note = options_.note;
  actor.chunks = chunks;
  actor.acts_per_step = chunks * builder.Tokens(builder.item().frequency);
  return actor;
}

TensorId ExchangeLowering::AddMessage(const std::string& name, proto::RegisterSpec::Side side,
                                      RankId peer, int64_t elements, const RankActor& actor,
                                      RankBuilder* builder) const {
  const int64_t slot_elements = std::min(elements, options_.chunk_elements);
  const TensorId message =
      builder->AddTensor(name, slot_elements * element_bytes(), actor.acts_per_step, actor.every);
  builder->graph().tensors[message].side = side;
  builder->graph().tensors[message].peer = peer;
  return message;
}

std::vector<TensorId> ExchangeLowering::LowerForRank(const TransferSite& site,
                                                     const std::vector<TensorId>& inputs,
                                                     RankBuilder* builder) const {
  const RankId rank = builder->rank();
  KnownExchanges::Known& known = known_exchanges_->Of(types_, steps_, places_, rank);
  const sbp::RankExchange& exchange = known.exchange;
  KnownExchanges::Chains& chains = known.chains[options_.chunk_elements];
  if (chains.packs.empty()) MakePacks(known, &chains);
  // Each rank begins with the rank after it, so that none of them is sent to by all at once.
  auto next = chains.packs.upper_bound(rank);
  std::vector<ActorId> sends;
  for (size_t i = 0; i < chains.packs.size(); ++i, ++next) {
    if (next == chains.packs.end()) next = chains.packs.begin();
    const auto& [peer, pack] = *next;
    sends.push_back(
        AddSend(site.ends[0], inputs, peer, pack, exchange.receiver_elements.at(peer), builder));
  }
  return AddFill(site.ends[1], inputs, exchange, sends, &chains, builder);
}

void ExchangeLowering::MakePacks(const KnownExchanges::Known& known,
                                 KnownExchanges::Chains* chains) const {
  const std::vector<sbp::Piece>* before = nullptr;
  KnownExchanges::Pack pack;
  for (const auto& [peer, pieces] : known.exchange.sends) {
    // All receivers of a gather get the same.
    if (before == nullptr || !(*before == pieces)) pack = MakePack(pieces, known.rank);
    before = &pieces;
    chains->packs.emplace(peer, pack);
  }
}

KnownExchanges::Pack ExchangeLowering::MakePack(const std::vector<sbp::Piece>& pieces,
                                                RankId rank) const {
  KnownExchanges::Pack made;
  RankKernel kernel;
  kernel.op = "exchange_pack";
  ExchangePack pack;
  pack.chunk_elements = options_.chunk_elements;
  std::map<int, int> operand_of;
  for (const sbp::Piece& piece : pieces) {
    const auto [operand, is_new] =
        operand_of.emplace(piece.tensor, static_cast<int>(made.tensors.size()));
    if (is_new) {
      made.tensors.push_back(piece.tensor);
      kernel.inputs.push_back(
          {RankOperand::kTensor, operand->second,
           sbp::StepInput(types_[piece.tensor], steps_[piece.tensor], places_, rank)});
    }
    pack.pieces.push_back({operand->second, piece.position, piece.src});
    made.elements += piece.src.volume();
  }
  kernel.transfer = std::move(pack);
  const int64_t slot_elements = std::min(made.elements, options_.chunk_elements);
  kernel.outputs.push_back({RankOperand::kTensor, static_cast<int>(made.tensors.size()),
                            TensorSlice::Whole(types_[0].dtype, {slot_elements})});
  KernelChain chain;
  chain.kernels.push_back(std::move(kernel));
  made.chain = MakeChain(std::move(chain));
  return made;
}

ActorId ExchangeLowering::AddSend(const TransferSite::End& end, const std::vector<TensorId>& inputs,
                                  RankId peer, const KnownExchanges::Pack& pack,
                                  int64_t receiver_elements, RankBuilder* builder) const {
  RankActor actor = MakeActor(end, SendName(peer), NumChunks(receiver_elements), *builder);
  actor.program = actor.name;
  actor.peer = peer;
  actor.far_name = options_.name;
  const TensorId message =
      AddMessage(absl::StrCat(options_.name, " rank ", builder->rank(), " to ", peer),
                 proto::RegisterSpec::OUTBOUND, peer, pack.elements, actor, builder);
  builder->graph().tensors[message].edge = EdgeOf(builder->rank(), peer);
  actor.chain = pack.chain;
  actor.operands.reserve(pack.tensors.size() + 1);
  for (int tensor : pack.tensors) actor.operands.push_back(inputs[tensor]);
  actor.operands.push_back(message);
  actor.outputs = {message};
  RankBuilder::CollectInputs(&actor);
  return builder->AddActor(std::move(actor));
}

// The operands are the tensors that are here, the messages in the order of their senders, and the
// new tensors.
std::shared_ptr<const KernelChain> ExchangeLowering::MakeFill(const sbp::RankExchange& exchange,
                                                              RankId rank,
                                                              const std::vector<bool>& here) const {
  std::vector<RankOperand> read, targets;
  int operand = 0;
  for (size_t i = 0; i < types_.size(); ++i) {
    read.push_back(here[i] ? RankOperand{RankOperand::kTensor, operand++,
                                         sbp::StepInput(types_[i], steps_[i], places_, rank)}
                           : RankOperand{});
  }
  for (const auto& [peer, elements] : exchange.receives) {
    const int64_t slot_elements = std::min(elements, options_.chunk_elements);
    read.push_back(
        {RankOperand::kTensor, operand++, TensorSlice::Whole(types_[0].dtype, {slot_elements})});
  }
  for (size_t i = 0; i < types_.size(); ++i) {
    targets.push_back(
        {RankOperand::kTensor, operand++, sbp::StepOutput(types_[i], steps_[i], places_, rank)});
  }
  KernelChain chain;
  chain.kernels.push_back(
      FillKernel("", DescribeFill(exchange, rank, types_.size(), options_.chunk_elements),
                 std::move(read), std::move(targets)));
  return MakeChain(std::move(chain));
}

std::vector<TensorId> ExchangeLowering::AddFill(const TransferSite::End& end,
                                                const std::vector<TensorId>& inputs,
                                                const sbp::RankExchange& exchange,
                                                const std::vector<ActorId>& sends,
                                                KnownExchanges::Chains* chains,
                                                RankBuilder* builder) const {
  std::vector<TensorId> outputs(types_.size());
  const RankId rank = builder->rank();
  const int64_t stage = builder->stage();
  if (stage != steps_[0].to.place) return outputs;
  int64_t positions = 0;
  for (const sbp::Region& region : exchange.regions) positions += region.dst.volume();
  RankActor actor = MakeActor(end, options_.name, NumChunks(positions), *builder);
  actor.program = options_.name;
  actor.far_name = SendName(rank);
  std::vector<bool> here(types_.size());
  for (size_t i = 0; i < types_.size(); ++i) {
    here[i] = stage == steps_[i].from.place && inputs[i].has_value();
    if (here[i]) actor.operands.push_back(inputs[i]);
  }
  std::shared_ptr<const KernelChain>& chain = chains->fills[here];
  if (chain == nullptr) chain = MakeFill(exchange, rank, here);
  actor.chain = chain;
  const Frequency frequency = builder->item().frequency;
  for (size_t i = 0; i < types_.size(); ++i) {
    outputs[i] = builder->AddTensor(options_.name, chain->kernels[0].outputs[i].slice.bytes(),
                                    builder->Tokens(frequency), builder->Every(frequency));
  }
  for (const auto& [peer, elements] : exchange.receives) {
    const TensorId message =
        AddMessage(absl::StrCat(options_.name, " rank ", peer, " to ", rank),
                   proto::RegisterSpec::INBOUND, peer, elements, actor, builder);
    builder->graph().tensors[message].edge = EdgeOf(peer, rank);
    actor.operands.push_back(message);
  }
  actor.operands.insert(actor.operands.end(), outputs.begin(), outputs.end());
  actor.outputs = outputs;
  RankBuilder::CollectInputs(&actor);
  if (!exchange.receives.empty()) {
    for (ActorId send : sends) AddPace(send, &actor, builder);
  }
  builder->AddActor(std::move(actor));
  return outputs;
}

std::vector<TensorId> ExchangeLowering::LowerForStage(const TransferSite& site,
                                                      const std::vector<TensorId>& inputs,
                                                      RankBuilder* builder) const {
  const int64_t elements =
      largest_shard_->Elements(types_, steps_, places_, options_.chunk_elements);
  const int64_t from = steps_[0].from.place, to = steps_[0].to.place, stage = builder->stage();
  const auto make = [&](const TransferSite::End& end) {
    return MakeActor(end, options_.name, NumChunks(elements), *builder);
  };
  const auto read = [](const std::vector<TensorId>& tensors, RankActor* actor) {
    for (TensorId tensor : tensors) {
      if (tensor.has_value() &&
          std::find(actor->inputs.begin(), actor->inputs.end(), tensor) == actor->inputs.end())
        actor->inputs.push_back(tensor);
    }
  };
  std::vector<TensorId> moved;
  for (size_t i = 0; i < types_.size(); ++i) {
    if (!IsLocal({steps_[i]})) moved.push_back(inputs[i]);
  }
  if (stage == from && !moved.empty()) {
    RankActor send = make(site.ends[0]);
    read(moved, &send);
    send.peer = places_.RankAt(to, 0);
    send.outputs = {AddMessage(options_.name, proto::RegisterSpec::OUTBOUND, send.peer, elements,
                               send, builder)};
    builder->AddActor(std::move(send));
  }
  std::vector<TensorId> outputs(types_.size());
  if (stage != to) return outputs;
  RankActor fill = make(site.ends[1]);
  if (stage == from) read(inputs, &fill);
  if (!moved.empty()) {
    read({AddMessage(options_.name, proto::RegisterSpec::INBOUND, places_.RankAt(from, 0), elements,
                     fill, builder)},
         &fill);
  }
  const Frequency frequency = builder->item().frequency;
  for (size_t i = 0; i < types_.size(); ++i) {
    outputs[i] = builder->AddTensor(
        options_.name, sbp::StepOutput(types_[i], steps_[i], places_, builder->rank()).bytes(),
        builder->Tokens(frequency), builder->Every(frequency));
  }
  fill.outputs = outputs;
  builder->AddActor(std::move(fill));
  return outputs;
}

RankKernel LocalExchangeKernel(const std::string& name, const sbp::TensorType& type,
                               const sbp::BoxingStep& step, const RankOperand& in,
                               const RankOperand& out, const RankBuilder& builder) {
  const sbp::RankExchange exchange =
      sbp::BuildExchange({type}, {step}, builder.places(), builder.rank());
  return FillKernel(name, DescribeFill(exchange, builder.rank(), 1, kOneChunk), {in}, {out});
}

}  // namespace weir::compiler
