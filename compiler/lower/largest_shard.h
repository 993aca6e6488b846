// The rank that receives most in an exchange: it says in how many chunks the exchange comes at the
// most. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sbp/boxing.h"

namespace weir::compiler {

class LargestShard {
 public:
  explicit LargestShard(const Mesh& mesh) : mesh_(mesh), stage_mesh_(mesh.StageMesh()) {}

  // Elements that the rank with most of them holds after `steps` (of a bundle: types[i] with
  // steps[i]). If `enough` are enough for every rank, any number up to that.
  int64_t Elements(const std::vector<TensorType>& types, const std::vector<BoxingStep>& steps,
                   int64_t enough);

 private:
  int64_t LookAtRanks(const std::vector<TensorType>& types,
                      const std::vector<BoxingStep>& steps) const;

  const Mesh& mesh_;
  const Mesh stage_mesh_;
  std::map<std::string, int64_t> known_;  // layers repeat
};

}  // namespace weir::compiler
