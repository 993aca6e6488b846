// The keys and values of a generation lie in pages of a pool (ops/defs/at_positions.h). A
// GenerationCache says which sequence has which row of the steps, and which pages.
//
//   waiting --Admit--> in a row --Grow--> more pages --Release--> no row and no page
//
// Devices that split the rows have a part of the pool each: the pages of their rows. A sequence has
// pages of the part of its row alone. No sequence has page 0, which stands for no page.
//
// Not here: the contents of pages, which are states of the ranks, and when a sequence comes or goes
// (generator.h).
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "compiler/ir/logical_plan.h"

namespace weir::train {

// Returns the rows before which the parts of the cache of `plan` end, ascending. The last one is
// the number of rows. Rows of one part have their keys and values on the same devices in every
// layer. Empty: the plan keeps nothing.
std::vector<int64_t> CacheRowEnds(const compiler::LogicalPlan& plan);

class GenerationCache {
 public:
  struct Place {
    int64_t row = 0;
    std::vector<int32_t> pages;  // in the order of positions
    int64_t pages_max = 0;       // that the sequence may need
  };

  // `row_ends` as CacheRowEnds returns them, not empty, or the union of those of several plans.
  // Each row brings `pages_per_row` pages.
  GenerationCache(const std::vector<int64_t>& row_ends, int64_t pages_per_row);

  // Returns the most pages that one sequence can have.
  int64_t capacity() const;
  int64_t num_pages() const { return num_pages_; }  // that sequences can have
  int64_t PagesInUseForTest() const { return pages_in_use_; }
  int64_t peak_pages() const { return peak_pages_; }
  // By number of the sequence. A low number is that of an old sequence.
  const std::map<size_t, Place>& places() const { return places_; }

  // Gives a row and `pages` pages to a sequence that may need `pages_max` of them. Among the parts
  // that have a row and so many pages, takes the one that has most pages beyond those that its
  // sequences may need. Returns false and does nothing if there is none. Precondition: the sequence
  // has no row; 0 <= pages <= pages_max.
  bool Admit(size_t sequence, int64_t pages, int64_t pages_max);
  // Gives a page more to a sequence in a row. Returns false and does nothing if its part has none.
  bool Grow(size_t sequence);
  // Returns the youngest sequence in the part of this one, perhaps itself.
  size_t YoungestBeside(size_t sequence) const;
  // Takes the row and the pages of a sequence back.
  void Release(size_t sequence);

 private:
  struct Part {
    int64_t capacity = 0;  // pages
    int64_t promised = 0;  // pages that its sequences may need; perhaps more than it has
    std::vector<int64_t> free_rows;
    std::vector<int32_t> free_pages;
  };
  Part& PartOf(size_t sequence) { return parts_[part_of_row_[places_.at(sequence).row]]; }
  void Take(Part* part, std::vector<int32_t>* pages);

  std::vector<Part> parts_;
  std::vector<size_t> part_of_row_;
  std::map<size_t, Place> places_;
  int64_t num_pages_ = 0, pages_in_use_ = 0, peak_pages_ = 0;
};

}  // namespace weir::train
