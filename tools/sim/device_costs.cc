#include "tools/sim/device_costs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/op_def.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/message_size.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::sim {
namespace {

std::string ShapesText(const std::vector<actors::PlanOperand>& operands) {
  std::vector<std::string> texts;
  for (const actors::PlanOperand& operand : operands) {
    if (operand.place == actors::PlanOperand::Place::kNone) {
      texts.push_back("-");
    } else {
      texts.push_back(operand.slice.shape.empty() ? "1" : absl::StrJoin(operand.slice.shape, "x"));
    }
  }
  return absl::StrJoin(texts, ",");
}

std::vector<sbp::TensorType> Types(const std::vector<actors::PlanOperand>& operands) {
  std::vector<sbp::TensorType> types;
  for (const actors::PlanOperand& operand : operands) {
    sbp::TensorType& type = types.emplace_back();
    if (operand.place == actors::PlanOperand::Place::kNone) continue;
    type.dtype = operand.slice.dtype;
    for (int64_t size : operand.slice.shape) type.dims.push_back({"", size, 1});
  }
  return types;
}

double BytesOf(const std::vector<actors::PlanOperand>& operands) {
  double bytes = 0;
  for (const actors::PlanOperand& operand : operands) {
    if (operand.place != actors::PlanOperand::Place::kNone)
      bytes += static_cast<double>(operand.slice.bytes());
  }
  return bytes;
}

bool MultipliesMatrices(const std::string& op) {
  return absl::StartsWith(op, "matmul") || absl::StartsWith(op, "attention");
}

double Work(double flops, double bytes) { return std::max(1.0, flops > 0 ? flops : bytes); }

}  // namespace

KernelWork WorkOf(const actors::PlanCall& call, int64_t chunks) {
  KernelWork work;
  work.op = call.op;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const actors::PlanOperand& operand : *operands) {
      if (work.dtype.empty() && operand.place != actors::PlanOperand::Place::kNone)
        work.dtype = Name(operand.slice.dtype);
    }
  }
  const double in = BytesOf(call.inputs), out = BytesOf(call.outputs);
  work.bytes = in + out;
  switch (TransferTrafficOf(call.op)) {
    case TransferTraffic::kNone: break;
    case TransferTraffic::kMessage: {
      const int64_t elements = MeanMessageElements(call.transfer, chunks);
      work.shapes = absl::StrCat("->", elements);
      work.bytes = 2 * static_cast<double>(elements * SizeOf(call.outputs[0].slice.dtype));
      return work;
    }
    case TransferTraffic::kChunk:
      work.shapes = absl::StrCat(ShapesText(call.inputs), "->", ShapesText(call.outputs),
                                 chunks > 1 ? absl::StrCat("/", chunks) : "");
      work.bytes /= static_cast<double>(chunks);
      return work;
  }
  work.shapes = absl::StrCat(ShapesText(call.inputs), "->", ShapesText(call.outputs));
  // Rows of the table, not the whole table.
  if (call.op == "embedding" || call.op == "take" || call.op == "gather") work.bytes = 2 * out;
  if (const ops::OpDef* def = ops::OpRegistry::Find(call.op); def != nullptr && def->flops) {
    work.flops = def->flops(call.attrs, Types(call.inputs), Types(call.outputs));
  }
  return work;
}

KernelWork WorkOf(const actors::Plan& plan, const actors::PlanActor& actor) {
  KernelWork work;
  const bool source = actor.kind == actors::ActorKind::kSource;
  work.op = source ? "feed" : actor.kind == actors::ActorKind::kSink ? "report" : "copy";
  work.dtype = source ? Name(actor.feed_slice.dtype) : "f32";
  const std::vector<actors::PlanPort>& ports = source ? actor.outputs : actor.inputs;
  if (!ports.empty()) work.bytes = static_cast<double>(plan.registers[ports[0].register_id].bytes);
  if (work.op == "copy") work.bytes *= 2;
  work.shapes = absl::StrCat(work.bytes);
  return work;
}

DeviceCosts::DeviceCosts(proto::DeviceModel model) : model_(std::move(model)) {
  for (const proto::KernelCost& row : model_.kernel()) {
    const OpKey key{row.op(), row.dtype()};
    if (!row.shapes().empty()) exact_[key][row.shapes()] = {row.ns(), row.busy_ns()};
    if (row.ns() > 0 && row.busy_ns() > 0) {
      Row& sum = sums_[key];
      sum.ns += row.ns();
      sum.busy_ns += row.busy_ns();
    }
    points_[key].push_back({Work(row.flops(), row.bytes()), row.ns()});
  }
  for (auto& [key, points] : points_) {
    std::sort(points.begin(), points.end(),
              [](const Point& a, const Point& b) { return a.work < b.work; });
    std::vector<Point> merged;  // rows of equal work become their mean
    for (size_t i = 0; i < points.size();) {
      double sum = 0;
      size_t end = i;
      for (; end < points.size() && points[end].work == points[i].work; ++end)
        sum += points[end].ns;
      merged.push_back({points[i].work, sum / static_cast<double>(end - i)});
      i = end;
    }
    points = std::move(merged);
  }
}

double DeviceCosts::PeakFlops(const std::string& dtype) const {
  for (const proto::Peak& peak : model_.peak()) {
    if (peak.dtype() == dtype) return peak.flops_per_second();
  }
  return 0;
}

const DeviceCosts::Row* DeviceCosts::RowOf(const KernelWork& work) const {
  const auto op = exact_.find({work.op, work.dtype});
  if (op == exact_.end()) return nullptr;
  const auto row = op->second.find(work.shapes);
  return row == op->second.end() ? nullptr : &row->second;
}

double DeviceCosts::BusyRatio(const KernelWork& work) const {
  const Row* row = RowOf(work);
  if (row != nullptr && row->ns > 0 && row->busy_ns > 0) return row->busy_ns / row->ns;
  const auto sum = sums_.find({work.op, work.dtype});
  return sum == sums_.end() ? 0 : sum->second.busy_ns / sum->second.ns;
}

absl::StatusOr<double> DeviceCosts::KernelNs(const KernelWork& kernel) const {
  const OpKey key{kernel.op, kernel.dtype};
  if (const Row* row = RowOf(kernel); row != nullptr) return row->ns;
  const double work = Work(kernel.flops, kernel.bytes);
  if (const auto found = points_.find(key); found != points_.end()) {
    const std::vector<Point>& points = found->second;
    const auto above =
        std::lower_bound(points.begin(), points.end(), work,
                         [](const Point& point, double value) { return point.work < value; });
    if (above == points.end()) return points.back().ns * work / points.back().work;
    if (above == points.begin() || above->work == work) return above->ns * work / above->work;
    const Point& low = *(above - 1);
    const Point& high = *above;
    const double share = std::log(work / low.work) / std::log(high.work / low.work);
    return std::exp(std::log(std::max(1.0, low.ns)) * (1 - share) +
                    std::log(std::max(1.0, high.ns)) * share);
  }
  double ns = model_.bytes_per_second() > 0 ? kernel.bytes / model_.bytes_per_second() * 1e9 : 0;
  if (kernel.flops > 0) {
    const proto::Peak* best = nullptr;
    for (const proto::Peak& peak : model_.peak()) {
      if (best == nullptr || peak.dtype() == kernel.dtype) best = &peak;
    }
    if (best == nullptr && MultipliesMatrices(kernel.op)) {
      return Rejected({"W0703", absl::StrCat("device ", model_.name()),
                       absl::StrCat("a cost of ", kernel.op, " of ", kernel.dtype),
                       "neither a row `kernel` of this op and dtype nor a peak",
                       "peak { dtype: \"" + kernel.dtype +
                           "\" flops_per_second: 30e12 }, or `weir calibrate` with this job"});
    }
    if (best != nullptr) {
      const double efficiency =
          MultipliesMatrices(kernel.op) && best->efficiency() > 0 ? best->efficiency() : 1;
      ns = std::max(ns, kernel.flops / (best->flops_per_second() * efficiency) * 1e9);
    }
  }
  return ns + model_.kernel_ns();
}

}  // namespace weir::sim
