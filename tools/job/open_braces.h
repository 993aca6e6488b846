// Finds what a protobuf text has open at a place, so that an error can say which brace lacks its
// end and which field has a wrong value. The text need not be valid. Strings and comments count for
// nothing, and messages between < and > count as those between braces. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
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

// A TextValue is a place where the value of a field begins, or its colon is missing.
struct TextValue {
  std::string field;
  size_t field_at = 0;  // the byte where the name of the field begins
  size_t at = 0;        // the byte of the place
  bool has_colon = false;
  bool in_list = false;
};

// Returns the field whose value begins at the place; nothing if no value may begin there.
std::optional<TextValue> FindValue(absl::string_view text, TextPlace place);

// Returns whether only spaces and comments follow the place.
bool IsAtEnd(absl::string_view text, TextPlace place);

}  // namespace weir::job
