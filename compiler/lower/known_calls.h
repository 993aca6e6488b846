// Remembers what calls of one function share on a device. A model calls few functions many times,
// so a rank makes most of its kernels once, and its calls run them on different tensors. The ranks
// that have the same number in stages of equal meshes share all of it as well.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/rank_builder.h"
#include "compiler/lower/segments.h"

namespace weir::compiler {

class KnownCalls {
 public:
  // A function as one device sees it.
  struct KnownFunction {
    SegmentedFunction segmented;
    std::vector<int> home;            // by value: the segment that makes it; -1: none
    std::vector<char> crosses;        // by value: read outside its segment, in the function
    std::vector<TensorSlice> slices;  // by value of a segment: the device's part
    std::vector<std::vector<ops::ValueId>> outputs;  // by segment: the values made, ascending
    std::vector<std::vector<ops::ValueId>> touched;  // by segment: the values read or made
  };
  // The kernels of a segment. Operands number the tensors in the order of `touched`.
  struct KnownChain {
    std::vector<int> operand_of;  // by entry of `touched`; -1: inside the segment
    std::shared_ptr<const KernelChain> kernels;
    std::vector<ops::ValueId> states;  // by operand kState: the value that lies in the state
  };

  // All builders passed here belong to ranks with one number in their stages, and stages that call
  // one function have one mesh. The plan outlives the object.
  absl::StatusOr<const KnownFunction*> FunctionOf(int function, const RankBuilder& builder);

  // Returns the kernels of a segment for a call. `tensor_of` has, by value, the tensor that the
  // value is outside the segment, or none. Sets the tensors that the operands name.
  const KnownChain& ChainOf(int function, size_t segment, const std::vector<TensorId>& tensor_of,
                            const RankBuilder& builder, std::vector<TensorId>* operands);

 private:
  std::map<int, KnownFunction> functions_;
  std::map<std::pair<int, size_t>, std::vector<std::unique_ptr<KnownChain>>> chains_;
};

}  // namespace weir::compiler
