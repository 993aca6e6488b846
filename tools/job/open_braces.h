// Finds the braces of a protobuf text that are open at a place, so that an error can say which
// brace lacks its end. The text need not be valid. Strings and comments count for nothing, and
// messages between < and > count as those between braces. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir::job {

struct OpenBrace {
  std::string field;  // the name before the brace; empty if there is none
  int64_t line = 0;   // of the brace; the first line is 1

  // Returns "`graph {` of line 3".
  std::string Text() const;
};

// A place in a text. Lines and columns begin at 0, and a tab goes on to the next multiple of 8, as
// in the errors of protobuf.
struct TextPlace {
  int64_t line = std::numeric_limits<int64_t>::max();  // by default the end of the text
  int64_t column = 0;
};

// Returns the braces that are open before the place, outermost first, and at most the outermost
// kOpenBracesMax.
inline constexpr size_t kOpenBracesMax = 64;
std::vector<OpenBrace> FindOpenBraces(absl::string_view text, TextPlace place);

// Returns whether only spaces and comments follow the place.
bool IsAtEnd(absl::string_view text, TextPlace place);

}  // namespace weir::job
