// Reads an IDX file (the format of MNIST and its relatives), plain or gzip: a magic number that
// gives the element type and the number of dimensions, then the dimensions, then the elements. Only
// unsigned bytes are read. Thread rule: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/tensor_slice.h"

namespace weir::store {

struct IdxArray {
  Shape shape;
  std::vector<uint8_t> data;
};

// Reads the whole file. kNotFound: no file. kInvalidArgument: IDX of other elements or with a
// number of dimensions other than `num_dims` (W0905). kDataLoss: not IDX at all, shorter or longer
// than its header says, or a broken gzip stream (W0057). `purpose` describes the file in messages:
// "training images".
absl::StatusOr<IdxArray> ReadIdxFile(const std::string& path, int num_dims,
                                     const std::string& purpose);

}  // namespace weir::store
