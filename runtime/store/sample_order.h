// A SampleOrder is the order in which a run sees the training samples of several parts (files): a
// pure function of (seed, number of the sample), in constant memory.
//
// Without weights, the parts are one long list of samples, and each epoch has each sample once, in
// an order of its own. With weights, each part has epochs of its own, and of 4,096 samples in a row
// each part has its share. Thread rule: immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir::store {

class SampleOrder {
 public:
  // `samples` holds the number of samples of each part; the sum of the samples that share epochs is
  // at least 1. `weights` is empty, or holds as many weights as there are parts, all of which
  // CheckWeights accepts.
  SampleOrder(std::vector<int64_t> samples, const std::vector<double>& weights, uint64_t key);

  struct Place {
    size_t part = 0;
    int64_t sample = 0;  // of the part
  };
  // Returns the place of sample `n` of the run; n >= 0.
  Place At(int64_t n) const;

  // kInvalidArgument (W0052): weights that are not as many as `num_parts`, not positive or not
  // finite, or more than half a block. `field` ("data.tokens") goes into errors.
  static absl::Status CheckWeights(const std::string& field, const std::vector<double>& weights,
                                   size_t num_parts);

 private:
  // Parts that share epochs.
  struct Source {
    std::vector<size_t> parts;
    int64_t samples = 0;  // of an epoch
    int64_t quota = 0;    // samples of a block
  };

  std::vector<int64_t> samples_;
  std::vector<Source> sources_;
  uint64_t key_;
};

}  // namespace weir::store
