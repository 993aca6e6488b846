#include "compiler/cost/cost_model.h"

#include <algorithm>

namespace weir::compiler {
namespace {

// This limit is above any sum of acts that a plan may have. Longer times are cut to this limit.
constexpr double kNsMax = 1e15;

int64_t ToNs(double seconds) {
  return static_cast<int64_t>(std::clamp(seconds * 1e9, 0.0, kNsMax));
}

std::vector<sbp::TensorType> Types(const std::vector<TensorSlice>& slices) {
  std::vector<sbp::TensorType> types(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    types[i].dtype = slices[i].dtype;
    types[i].dims.resize(slices[i].shape.size());
    for (size_t d = 0; d < slices[i].shape.size(); ++d) types[i].dims[d].size = slices[i].shape[d];
  }
  return types;
}

double Bytes(const std::vector<TensorSlice>& slices) {
  double sum = 0;
  for (const TensorSlice& slice : slices)
    sum += static_cast<double>(std::max<int64_t>(0, slice.bytes()));
  return sum;
}

}  // namespace

int64_t PeakCosts::KernelNs(const KernelUse& kernel) const {
  double traffic = (Bytes(kernel.inputs) + Bytes(kernel.outputs)) / model_.memory_bytes_per_second;
  const ops::OpDef* def = ops::OpRegistry::Find(kernel.op);
  double arithmetic = 0;
  if (def != nullptr && def->flops) {
    arithmetic = def->flops(kernel.attrs, Types(kernel.inputs), Types(kernel.outputs)) /
                 model_.flops_per_second;
  }
  return model_.kernel_ns + ToNs(std::max(traffic, arithmetic));
}

int64_t PeakCosts::LatencyNs(LinkLevel level, int64_t bytes) const {
  const DevicePeaks::Link& link =
      level == LinkLevel::kWithinHost ? model_.within_host : model_.between_hosts;
  return link.latency_ns +
         ToNs(static_cast<double>(std::max<int64_t>(0, bytes)) / link.bytes_per_second);
}

}  // namespace weir::compiler
