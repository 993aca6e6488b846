// Checks of the values of options, for `check` of CLI11. CLI11 alone takes values that no option of
// Weir means.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "CLI/CLI.hpp"

namespace weir::cli {

// A text that is not empty. An empty text is mostly an unset variable of a script. Without this
// check the run would keep nothing.
CLI::Validator IsPath();

// A whole number from `least` to 2^63 - 1. CLI11 reads a number above 2^63 - 1 as that number, and
// its own check for a number above 0 names the largest double as the end of the range.
CLI::Validator IsCount(int64_t least = 0);

// A whole number above 0, or such a number with a unit of time: 60s, 10m, 1h.
CLI::Validator IsCountOrTime();

// A number from `least` to 1e6. "nan" lies in every range of CLI11.
CLI::Validator IsSeconds(double least);

}  // namespace weir::cli
