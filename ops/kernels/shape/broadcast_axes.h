// BroadcastAxes holds the axes of a result whose operands are aligned at their last axes, and
// repeat along the axes that they lack or in which their size is 1. Neighbouring axes along which
// the same operands repeat are one axis. Kernels walk the result in runs along the last axis:
// within a run, an operand is contiguous, or one element serves all. Thread rule: immutable value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/tensor_slice.h"

namespace weir::kernels {

class BroadcastAxes {
 public:
  static constexpr size_t kOperandsMax = 3;

  // A run of elements of the result: the first element and the number of elements, and of each
  // operand the first element and whether the operand repeats.
  struct Run {
    int64_t at = 0, count = 0;
    std::array<int64_t, kOperandsMax> first = {};
    std::array<bool, kOperandsMax> repeats = {};
  };

  struct Axis {
    int64_t size = 1;
    std::array<bool, kOperandsMax> repeats = {};
    std::array<int64_t, kOperandsMax> strides = {};  // elements; 0 where the operand repeats
  };

  // Returns whether, along each axis, every operand is as long as the result or repeats, and one of
  // them does not repeat.
  static bool Fit(const std::vector<Shape>& operands, const Shape& result);

  // Precondition: Fit, and at most kOperandsMax operands.
  BroadcastAxes(const std::vector<Shape>& operands, const Shape& result);

  // From the outermost; the last axis is that of runs. There is at least one.
  const std::vector<Axis>& axes() const { return axes_; }

  // Calls visit(run) for the elements [begin, end) of the result, in order.
  template <class Visit>
  void ForEachRun(int64_t begin, int64_t end, Visit&& visit) const {
    for (int64_t at = begin; at < end;) {
      const Run run = RunAt(at, end - at);
      visit(run);
      at += run.count;
    }
  }

 private:
  Run RunAt(int64_t at, int64_t most) const {
    const Axis& last = axes_.back();
    const int64_t in_run = at % last.size;
    Run run{at, std::min(most, last.size - in_run), {}, last.repeats};
    for (size_t i = 0; i < num_operands_; ++i) run.first[i] = in_run * last.strides[i];
    int64_t rest = at / last.size;
    for (size_t d = axes_.size() - 1; d-- > 0;) {
      const int64_t coordinate = rest % axes_[d].size;
      rest /= axes_[d].size;
      for (size_t i = 0; i < num_operands_; ++i) run.first[i] += coordinate * axes_[d].strides[i];
    }
    return run;
  }

  size_t num_operands_;
  std::vector<Axis> axes_;
};

}  // namespace weir::kernels
