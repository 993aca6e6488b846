// A RankRanges is a set of ranks as a few arithmetic progressions, because a set may have a million
// ranks: those of one stage are often neighbours, or each fourth rank. Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace weir {

class RankRanges {
 public:
  // A Range is `first`, `first` + `stride` and so on, `count` ranks.
  struct Range {
    int64_t first = 0;
    int64_t stride = 1;
    int64_t count = 0;
    int64_t last() const { return first + stride * (count - 1); }
  };

  // Adds a rank that is above all ranks of the set.
  void Add(RankId rank);
  // Adds a range, as a file tells it. Returns false and adds nothing if the range is impossible:
  // its numbers are no ranks (plan_limits::kRanksMax), or the set would have too many of them.
  bool Add(const Range& range);

  const std::vector<Range>& ranges() const { return ranges_; }
  int64_t size() const { return size_; }
  bool Has(RankId rank) const;
  // Returns "0 to 255", "0, 4, ..., 28", or "0, 2, 5 to 9 and 3 more ranges".
  std::string Text() const;

 private:
  std::vector<Range> ranges_;
  int64_t size_ = 0;
};

}  // namespace weir
