// The seeds of a command that plays many cases, as its user writes them. Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weir::disk {

struct SeedRange {
  uint64_t first = 1, last = 1;  // both are played
};

// Reads "7" or "1..20000". Returns nullopt for anything else, and for ranges without a seed.
inline std::optional<SeedRange> ReadSeedRange(const std::string& text) {
  const std::vector<std::string> ends = absl::StrSplit(text, "..");
  SeedRange seeds;
  if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &seeds.first) ||
      !absl::SimpleAtoi(ends.back(), &seeds.last) || seeds.first > seeds.last)
    return std::nullopt;
  return seeds;
}

}  // namespace weir::disk
