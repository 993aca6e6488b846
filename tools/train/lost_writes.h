// Counts the writes of an output on the way that fail, and says so to people: once when writing
// begins to fail and once when it works again, so that a full disk does not flood the console.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace weir::train {

class LostWrites {
 public:
  // `output`: what is written, as "--metrics m.jsonl". `unit`: what one write writes, as "line".
  LostWrites(std::string output, std::string unit)
      : output_(std::move(output)), unit_(std::move(unit)) {}

  // Call after each write, with its errno or 0. Returns a warning that a person should read now, or
  // mostly an empty text.
  std::string Note(int error);
  // Returns a warning for the end of the run; empty if nothing is lost.
  std::string Summary() const;

 private:
  const std::string output_, unit_;
  bool failing_ = false;
  int64_t num_lost_ = 0;
};

}  // namespace weir::train
