// Labelled images from IDX files. Training goes through all images in an order that is shuffled
// again for each epoch (a function of seed and epoch); held-out batches are the test files in
// order, once.
// Thread rule: see dataset.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"

namespace weir::store {

struct IdxDataOptions {
  std::string images;                    // [n, rows, columns]
  std::string labels;                    // [n]; empty: there is no feed "labels"
  std::string test_images, test_labels;  // as images and labels; empty: nothing is held out
  int64_t batch = 1;                     // samples per step
  uint64_t seed = 0;
  DataUse use = DataUse::kTrain;
};

// Reads the files into memory (a byte per pixel). kNotFound: no file. kDataLoss: a damaged file.
// kInvalidArgument: counts or sizes that disagree, or fewer images than one batch.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const IdxDataOptions& options);

}  // namespace weir::store
