// Arrays with names, as users of NumPy and PyTorch have them. Each array is the feed of its name,
// and row n of all arrays together is sample n. Parts (files or folders) follow one another, or
// have shares by weight. Training samples are shuffled again in each epoch (sample_order.h);
// held-out samples come in order, part by part: the ends of the parts to train on, then the parts
// that are wholly held out. Thread rule: see dataset.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/dataset.h"
#include "runtime/store/stored_array.h"

namespace weir::store {

struct ArrayDataOptions {
  // Either all arrays of each path (ArraysIn of stored_array.h), or arrays of .npy files, each with
  // as many paths as the others.
  std::vector<std::string> paths, held_out_paths;
  struct Array {
    std::string name;
    std::vector<std::string> paths, held_out_paths;
  };
  std::vector<Array> arrays;
  std::vector<double> weights;  // of the parts to train on, or none
  double held_out = 0;          // share of each part to train on, at its end; 0 <= held_out < 1
  std::map<std::string, ElementScale> scales;  // by array
  std::vector<std::string> wanted;             // feeds that the model takes
  int64_t batch = 1;                           // samples per step
  uint64_t seed = 0;
  DataUse use = DataUse::kTrain;
};

// kNotFound: no file. kInvalidArgument: a file that holds no arrays (W0790); fields that contradict
// each other, or a wanted array that a part lacks (W0791); a share or weights out of range (W0052);
// wanted arrays with different numbers of samples, or too few samples for one batch (W0794).
absl::StatusOr<std::unique_ptr<Dataset>> OpenArrayDataset(const ArrayDataOptions& options);

}  // namespace weir::store
