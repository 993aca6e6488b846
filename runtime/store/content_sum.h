// The content sum of a tensor: a sum, modulo 2^64, over its elements of a hash of the tensor's
// name, the element's position in the whole tensor, and the element's bits. Shards add up to the
// sum of their tensor whichever way the tensor is cut, so a sum that a checkpoint recorded under
// one layout can be checked under any other. Values that are permuted, in another tensor or in
// another place have another sum. The sum is no protection against somebody who wants to deceive.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/tensor_slice.h"

namespace weir::store {

// The hash seed of a tensor.
uint32_t ContentSeed(const std::string& tensor);

// Returns what the elements [first, first + count) of a shard, in its row-major order, add to the
// sum of its tensor. `data` holds these elements, each `width` bytes (1, 2, 4 or 8), unaligned.
// The shard is the box of `shape` at `offset` in a tensor of `global_shape`.
uint64_t AddContent(uint32_t seed, int64_t width, const Shape& global_shape, const Shape& offset,
                    const Shape& shape, int64_t first, int64_t count, const void* data);

}  // namespace weir::store
