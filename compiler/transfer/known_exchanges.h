// Remembers the parts of ranks in exchanges, and the kernels that carry them out. Calls of one
// function move equal tensors in equal steps, so a rank meets most of its exchanges many times. Not
// here: what an exchange is (sbp/boxing.h), and how kernels are made of it
// (transfer/exchange_lowering.h).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "compiler/ir/rank_graph.h"
#include "sbp/boxing.h"

namespace weir::compiler {

class KnownExchanges {
 public:
  // The chain of a send. Its operands are tensors of the exchange, and last the message.
  struct Pack {
    std::shared_ptr<const KernelChain> chain;
    std::vector<int> tensors;  // by operand
    int64_t elements = 0;      // of the message
  };
  // The chains of one size of chunks, as far as they were made.
  struct Chains {
    std::map<RankId, Pack> packs;  // by the rank that receives
    // By the tensors that are here before the exchange.
    std::map<std::vector<bool>, std::shared_ptr<const KernelChain>> fills;
  };
  struct Known {
    std::vector<sbp::TensorType> types;
    std::vector<sbp::BoxingStep> steps;
    RankId rank;
    sbp::RankExchange exchange;        // sbp::BuildExchange of the arguments
    std::map<int64_t, Chains> chains;  // by the elements of a chunk
  };

  // Returns what is known of the part of `rank`, to which the caller adds chains. The result lives
  // as long as the object. The places of all calls are those of one job, with meshes cut or not.
  Known& Of(const std::vector<sbp::TensorType>& types, const std::vector<sbp::BoxingStep>& steps,
            const sbp::Places& places, RankId rank);

 private:
  // By rank, methods and sizes. Few entries share a key.
  std::unordered_map<uint64_t, std::list<Known>> known_;
};

}  // namespace weir::compiler
