#include "compiler/transfer/transfer_lowering.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/transfer/collective_lowering.h"
#include "compiler/transfer/exchange_lowering.h"
#include "runtime/base/status.h"

namespace weir::compiler {

bool IsLocal(const std::vector<sbp::BoxingStep>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const sbp::BoxingStep& step) {
    return step.method == sbp::BoxingMethod::kIdentity ||
           step.method == sbp::BoxingMethod::kSlice || step.method == sbp::BoxingMethod::kToPartial;
  });
}

bool MovedTensors::Fits(const sbp::Boxing& boxing) const {
  if (boxing.type.dtype != types_[0].dtype || boxing.steps.size() != num_transfers()) return false;
  for (size_t k = 0; k < num_transfers(); ++k) {
    const sbp::BoxingStep &mine = steps_[0][k], &other = boxing.steps[k];
    if (mine.from.place != other.from.place || mine.to.place != other.to.place) return false;
    for (const int64_t place : {mine.from.place, mine.to.place}) {
      if (boxing.places.mesh(place) != places_.mesh(place)) return false;
    }
  }
  return true;
}

void MovedTensors::Add(const sbp::Boxing& boxing) {
  types_.push_back(boxing.type);
  steps_.push_back(boxing.steps);
}

MovedTensors MovedTensors::At(int64_t place) const {
  MovedTensors moved = *this;
  for (std::vector<sbp::BoxingStep>& steps : moved.steps_) {
    for (sbp::BoxingStep& step : steps) step.from.place = step.to.place = place;
  }
  return moved;
}

void MovedTensors::JoinSteps(size_t k) {
  for (std::vector<sbp::BoxingStep>& steps : steps_) {
    steps[k].method = sbp::BoxingMethod::kAllReduce;
    steps[k].to = steps[k + 1].to;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(k) + 1);
  }
}

MovedTensors TransferFactory::Joined(MovedTensors moved) const {
  if (collectives_ == Collectives::kExchanges) return moved;
  for (size_t k = 0; k + 1 < moved.num_transfers(); ++k) {
    const bool is_sum_and_gather = std::all_of(
        moved.steps().begin(), moved.steps().end(), [k](const std::vector<sbp::BoxingStep>& steps) {
          const sbp::BoxingStep &sum = steps[k], &gather = steps[k + 1];
          return sum.flat && gather.flat && sum.flat_axes == gather.flat_axes &&
                 sum.method == sbp::BoxingMethod::kReduceScatter &&
                 gather.method == sbp::BoxingMethod::kAllGather && sum.to == gather.from;
        });
    if (!is_sum_and_gather) continue;
    MovedTensors joined = moved;
    joined.JoinSteps(k);
    if (IsCollective(joined, k)) moved = std::move(joined);
  }
  return moved;
}

absl::StatusOr<MovedTensors> TransferFactory::Plan(const Module& module, const ProgramItem& item,
                                                   const sbp::Places& places) {
  std::optional<MovedTensors> moved;
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const ProgramValue& from = module.values[item.inputs[i]];
    const ProgramValue& to = module.values[item.outputs[i]];
    WEIR_ASSIGN_OR_RETURN(
        const sbp::Boxing* boxing,
        known_boxings_.Of(from.type, {from.layout, from.stage}, {to.layout, to.stage}, places));
    if (!moved.has_value()) {
      moved.emplace(*boxing);
    } else {
      moved->Add(*boxing);
    }
  }
  return Joined(*std::move(moved));
}

bool TransferFactory::IsCollective(const MovedTensors& moved, size_t k) const {
  return collectives_ != Collectives::kExchanges && CollectiveLowering::Fits(moved, k) &&
         CollectiveLowering::BytesOf(moved, k) >= collective_bytes_min_;
}

std::unique_ptr<TransferLowering> TransferFactory::Make(const MovedTensors& moved, size_t k,
                                                        TransferOptions options) {
  if (IsCollective(moved, k))
    return std::make_unique<CollectiveLowering>(moved, k, std::move(options));
  return std::make_unique<ExchangeLowering>(moved, k, std::move(options), &largest_shard_,
                                            &known_exchanges_);
}

int64_t TransferFactory::TotalBytes(const MovedTensors& moved) {
  int64_t bytes = 0;
  for (size_t k = 0; k < moved.num_transfers(); ++k) bytes += Make(moved, k, {})->TotalBytes();
  return bytes;
}

std::vector<TensorId> AddTransfer(const TransferLowering& transfer, LoweredFor lowered_for,
                                  const std::vector<TensorId>& inputs, RankBuilder* builder) {
  const TransferSite site = transfer.Site(builder->station());
  builder->graph().sites.push_back(site);
  std::vector<TensorId> outputs = lowered_for == LoweredFor::kStage
                                      ? transfer.LowerForStage(site, inputs, builder)
                                      : transfer.LowerForRank(site, inputs, builder);
  builder->NextStation(site.ends.size());
  return outputs;
}

void AppendLocalTransfer(const std::string& name, const sbp::TensorType& type,
                         const std::vector<sbp::BoxingStep>& steps, RankOperand in,
                         const RankOperand& out, const RankBuilder& builder, KernelChain* chain) {
  for (size_t k = 0; k < steps.size(); ++k) {
    sbp::BoxingStep step = steps[k];
    step.from.place = step.to.place = builder.stage();
    in.slice = sbp::StepInput(type, step, builder.places(), builder.rank());
    RankOperand target = out;
    target.slice = sbp::StepOutput(type, step, builder.places(), builder.rank());
    if (k + 1 < steps.size()) {
      target.kind = RankOperand::kScratch;
      target.index = static_cast<int>(chain->scratch.size());
      chain->scratch.push_back(target.slice.bytes());
    }
    chain->kernels.push_back(LocalExchangeKernel(name, type, step, in, target, builder));
    in = target;
  }
}

}  // namespace weir::compiler
