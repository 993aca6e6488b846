// Finds the rank that receives most in an exchange. That rank sets the largest number of chunks of
// the exchange. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sbp/boxing.h"

namespace weir::compiler {

class LargestShard {
 public:
  // Returns the number of elements that the fullest rank holds after `steps` (of a bundle: types[i]
  // with steps[i]). If no rank can hold more than `enough` elements, the result is any number up to
  // `enough`. The places of all calls are those of one job, with meshes cut or not.
  int64_t Elements(const std::vector<sbp::TensorType>& types,
                   const std::vector<sbp::BoxingStep>& steps, const sbp::Places& places,
                   int64_t enough);

 private:
  std::map<std::string, int64_t> known_;  // layers repeat, so their results do
};

}  // namespace weir::compiler
