// Checks the bounds of a protobuf text before the text is parsed.
//
// A few bytes of text ("node {}") become a message of a hundred or two hundred bytes, so a text
// from an unknown author may need many times its size in memory. The parse of a text within these
// bounds needs at most 4 times the size of the text and 64 MiB. A value is a message, a number, a
// word, or a string (several strings that follow one another count as one string). A job of a
// thousand functions has some ten thousand values. Not here: whether the text is a valid message;
// the parser decides that. The counts here are never less than what the parser makes. Thread rule:
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weir::job {

inline constexpr int64_t kTextValuesMax = 100'000;
inline constexpr int64_t kTextStringBytesMax = 64 << 10;
inline constexpr int64_t kSetBytesMax = 1 << 20;

struct TextCounts {
  int64_t values = 0;
  // The length as written, without quotes. Strings that follow one another count as one.
  int64_t longest_string_bytes = 0;
  int64_t longest_string_line = 0;  // line of its end; the first line is 1
};
TextCounts CountText(absl::string_view text);

// kInvalidArgument: too many values (W0811), or a string is too long (W0812). `name` names the
// text, as in "job.textproto".
absl::Status CheckTextBounds(absl::string_view text, const std::string& name);

// Checks the assignments of --set ("training.steps=10") before any of them is applied to the job of
// `text`. kInvalidArgument: they have more than kSetBytesMax together (W0812), or they and the text
// together have more than kTextValuesMax (W0811).
absl::Status CheckSetBounds(absl::string_view text, const std::vector<std::string>& assignments);

}  // namespace weir::job
