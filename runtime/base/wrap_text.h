// Breaks text into lines that fit a terminal. Lines break at spaces, but not between a number and
// its unit ("41.4 MiB"); a word that is longer than the line stays whole, so that a path or a
// command can still be copied. Characters are counted, not bytes. Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weir {

// Lines have this many characters where the output is not a terminal.
inline constexpr int kColumnsWithoutTerminal = 100;

// Number of characters of UTF-8 text.
int NumCharacters(absl::string_view text);

// `text` in lines of at most `columns` characters. Each line of the input is broken by itself; what
// follows on from one begins with the spaces that the line begins with and `hanging` more.
std::string WrapText(absl::string_view text, int columns, int hanging = 2);

// `text` in at most `columns` characters: cut off at the end, with "…" in the last place, if it is
// longer.
std::string CutText(absl::string_view text, int columns);

}  // namespace weir
