// A ReadySet holds the actors of a rank that are ready, best first: a set of places in one fixed
// order (priority, then id), as a tree of bitmaps. The cost of adding, removing and finding the
// first does not depend on the number of ready actors.
// Thread rule: one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace weir::actors {

class ReadySet {
 public:
  explicit ReadySet(int size) : leaves_(size / 64 + 1), summary_(leaves_.size() / 64 + 1) {}

  void Add(int place) {
    leaves_[place / 64] |= uint64_t{1} << (place % 64);
    summary_[place / 4096] |= uint64_t{1} << (place / 64 % 64);
    ++size_;
  }
  void Remove(int place) {
    if ((leaves_[place / 64] &= ~(uint64_t{1} << (place % 64))) == 0) {
      summary_[place / 4096] &= ~(uint64_t{1} << (place / 64 % 64));
    }
    --size_;
  }
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  // The least place in the set. Precondition: not empty.
  int First() const {
    size_t s = 0;
    while (summary_[s] == 0) ++s;
    const size_t leaf = s * 64 + std::countr_zero(summary_[s]);
    return static_cast<int>(leaf * 64 + std::countr_zero(leaves_[leaf]));
  }
  // The k-th least place. Precondition: k < size().
  int Nth(int k) const {
    for (size_t leaf = 0;; ++leaf) {
      const int here = std::popcount(leaves_[leaf]);
      if (k >= here) {
        k -= here;
        continue;
      }
      uint64_t word = leaves_[leaf];
      for (; k > 0; --k) word &= word - 1;
      return static_cast<int>(leaf * 64 + std::countr_zero(word));
    }
  }

 private:
  std::vector<uint64_t> leaves_;
  std::vector<uint64_t> summary_;
  int size_ = 0;
};

}  // namespace weir::actors
