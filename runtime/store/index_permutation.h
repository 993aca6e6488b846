// An IndexPermutation is a permutation of [0, size) as a function, not a table: it gives element i
// of a shuffle of any size in constant memory. The permutation is a Feistel network over the
// smallest even number of bits that holds size - 1, iterated until the result is below `size`.
// The permutation hides no secrets. Thread rule: a value; pure.
#pragma once

#include <cstdint>

#include "runtime/base/random.h"

namespace weir::store {

class IndexPermutation {
 public:
  // Requires size >= 1.
  IndexPermutation(uint64_t key, int64_t size) : key_(key), size_(static_cast<uint64_t>(size)) {
    while (((size_ - 1) >> (2 * half_bits_)) != 0) ++half_bits_;
  }

  // Returns the place to which `index` goes; 0 <= index < size.
  int64_t At(int64_t index) const {
    uint64_t value = static_cast<uint64_t>(index);
    do {
      value = Scramble(value);
    } while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kRounds = 6;

  uint64_t Scramble(uint64_t value) const {
    uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      uint64_t mixed = left ^ (RandomBits(MixKey(key_, round), right)[0] & mask);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  uint64_t key_;
  uint64_t size_;
  int half_bits_ = 1;
};

}  // namespace weir::store
