// Breaks text into lines that fit a terminal. Lines break at spaces, but not between a number and
// its unit ("41.4 MiB"). A word that is longer than the line stays whole, so that a path or a
// command can still be copied. Columns count characters, not bytes. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weir {

// Lines have this many characters where the output is not a terminal.
inline constexpr int kColumnsWithoutTerminal = 100;

// Returns the number of characters of UTF-8 text.
int NumCharacters(absl::string_view text);

// Returns `text` in lines of at most `columns` characters. Each line of the input is broken by
// itself; its continuation lines begin with the spaces with which the line begins and `hanging`
// more.
std::string WrapText(absl::string_view text, int columns, int hanging = 2);

// Returns `text` in at most `columns` characters. Longer text is cut off at the end, with "…" in
// the last place.
std::string CutText(absl::string_view text, int columns);

}  // namespace weir
