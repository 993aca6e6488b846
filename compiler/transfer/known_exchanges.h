// Remembers the parts of ranks in exchanges. Calls of one function move equal tensors in equal
// steps, so a rank meets most of its exchanges many times. Not here: what an exchange is
// (sbp/boxing.h).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "sbp/boxing.h"

namespace weir::compiler {

class KnownExchanges {
 public:
  // Returns sbp::BuildExchange of the arguments. The result lives as long as the object. The
  // places of all calls are those of one job, with meshes cut or not.
  const sbp::RankExchange& Of(const std::vector<sbp::TensorType>& types,
                              const std::vector<sbp::BoxingStep>& steps, const sbp::Places& places,
                              int64_t rank);

 private:
  struct Known {
    std::vector<sbp::TensorType> types;
    std::vector<sbp::BoxingStep> steps;
    int64_t rank = 0;
    sbp::RankExchange exchange;
  };

  // By rank, methods and sizes. Few entries share a key.
  std::unordered_map<uint64_t, std::list<Known>> known_;
};

}  // namespace weir::compiler
