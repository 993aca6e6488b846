// Looks for values that are no numbers: NaN and infinity. Reads memory once, at about its speed.
// Thread rule: pure.
#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"

namespace weir {

struct NonfiniteCount {
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t first = -1;  // the index of the first of either; -1: all values are finite
};

// Whether all `count` values of type `dtype` at `data` are finite. Integers always are.
bool AllFinite(DType dtype, const void* data, int64_t count);
// The same, in detail; slower where the answer is no.
NonfiniteCount CountNonfinite(DType dtype, const void* data, int64_t count);

}  // namespace weir
