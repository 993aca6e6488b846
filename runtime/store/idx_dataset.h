// Labelled images from IDX files. Training goes through all images in an order
// shuffled anew each epoch (a function of seed and epoch); held-out batches are the
// test files in order, once.
// Thread rule: see dataset.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"

namespace weir {

struct IdxDataOptions {
  std::string images, labels;            // [n, rows, columns] and [n]
  std::string test_images, test_labels;  // both or neither
  int64_t batch = 1;                     // samples per step
  int64_t classes = 256;                 // labels must be below
  uint64_t seed = 0;
};

// Reads the files into memory (a byte per pixel). kNotFound: no file. kDataLoss: a damaged
// file. kInvalidArgument: counts or sizes that disagree, fewer images than one
// batch, or a label that the model has no class for.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const IdxDataOptions& options);

}  // namespace weir
