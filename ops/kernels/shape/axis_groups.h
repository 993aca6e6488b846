// AxisGroups holds the axes of a dense tensor, each either reduced or kept, with neighbours of the
// same kind joined. Reductions and their gradients walk a tensor as rows of its innermost group.
// Thread rule: value.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/tensor_slice.h"

namespace weir::kernels {

class AxisGroups {
 public:
  enum class Kind : uint8_t { kKept, kReduced };

  // An empty `axes` reduces all. Axes of size 1 are dropped. Axes must be legal.
  AxisGroups(const Shape& shape, const std::vector<int64_t>& axes);

  // The innermost group: rows are `row` contiguous elements.
  Kind inner() const { return inner_; }
  int64_t row() const { return row_; }
  // Return the product of the sizes of the outer groups of either kind.
  int64_t num_kept() const { return num_kept_; }
  int64_t num_reduced() const { return num_reduced_; }

  // Returns the start of the row of the kept-th kept and reduced-th reduced outer index.
  int64_t RowStart(int64_t kept, int64_t reduced) const {
    return Start(kept_, kept) + Start(reduced_, reduced);
  }
  // Returns the kept outer index of the row that is the i-th in memory.
  int64_t KeptIndexOf(int64_t i) const;

  struct Group {
    int64_t size, stride;
    Kind kind;
  };
  // The outer groups, the fastest first.
  const std::vector<Group>& outer() const { return outer_; }

 private:
  static int64_t Start(const std::vector<Group>& groups, int64_t index);

  Kind inner_ = Kind::kKept;
  int64_t row_ = 1, num_kept_ = 1, num_reduced_ = 1;
  std::vector<Group> outer_, kept_, reduced_;  // the fastest first
};

// Returns the shape without the reduced axes; for checks.
Shape KeptShape(const Shape& shape, const std::vector<int64_t>& axes);
// Returns whether every axis exists and is named once.
bool LegalAxes(const Shape& shape, const std::vector<int64_t>& axes);
// Returns the product of the sizes of the reduced axes.
int64_t ReducedElements(const Shape& shape, const std::vector<int64_t>& axes);

}  // namespace weir::kernels
