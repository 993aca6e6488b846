#include "ops/kernels/shape/broadcast_axes.h"

namespace weir::kernels {
namespace {

bool RepeatsAlong(const Shape& operand, size_t axis, const Shape& result) {
  const size_t lacking = result.size() - operand.size();
  return axis < lacking || (operand[axis - lacking] == 1 && result[axis] != 1);
}

}  // namespace

bool BroadcastAxes::Fit(const std::vector<Shape>& operands, const Shape& result) {
  for (const Shape& operand : operands) {
    if (operand.size() > result.size()) return false;
  }
  for (size_t d = 0; d < result.size(); ++d) {
    bool all_repeat = true;
    for (const Shape& operand : operands) {
      if (RepeatsAlong(operand, d, result)) continue;
      all_repeat = false;
      if (operand[d + operand.size() - result.size()] != result[d]) return false;
    }
    if (all_repeat) return false;
  }
  return true;
}

BroadcastAxes::BroadcastAxes(const std::vector<Shape>& operands, const Shape& result)
    : num_operands_(operands.size()) {
  for (size_t d = 0; d < result.size(); ++d) {
    if (result[d] == 1) continue;
    Axis axis;
    for (size_t i = 0; i < num_operands_; ++i)
      axis.repeats[i] = RepeatsAlong(operands[i], d, result);
    if (axes_.empty() || axes_.back().repeats != axis.repeats) axes_.push_back(axis);
    axes_.back().size *= result[d];
  }
  if (axes_.empty()) axes_.emplace_back();
  std::array<int64_t, kOperandsMax> stride;
  stride.fill(1);
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    for (size_t i = 0; i < num_operands_; ++i) {
      axis->strides[i] = axis->repeats[i] ? 0 : stride[i];
      if (!axis->repeats[i]) stride[i] *= axis->size;
    }
  }
}

}  // namespace weir::kernels
