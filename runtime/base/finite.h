// Looks for values that are not finite: NaN and infinity. Reads memory once, at about the memory's
// speed.
// Thread rule: pure.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace weir {

struct NonfiniteCount {
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t first = -1;  // index of the first value that is not finite; -1: all are finite
};

// Returns whether all `count` values of type `dtype` at `data` are finite. Integers always are.
bool AllFinite(DType dtype, const void* data, int64_t count);
// Counts the values that are not finite; slower than AllFinite if there are any.
NonfiniteCount CountNonfinite(DType dtype, const void* data, int64_t count);

}  // namespace weir
