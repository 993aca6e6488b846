// Bounds on a protobuf text, looked at before anything is made of it.
//
// A few bytes of text ("node {}") become a message of a hundred or two, so a text that somebody
// else wrote may take many times its size in memory. Reading a text that keeps these bounds takes
// at most 4 times its size and 64 MiB. A value is a message, a number, a word, or a string, also
// one of several strings that follow one another; a job of a thousand functions has some ten
// thousand. Not here: whether the text is a message; the parser says so. What is counted here is
// never less than what it makes. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weir {

inline constexpr int64_t kTextValuesMax = 100'000;
inline constexpr int64_t kTextStringBytesMax = 64 << 10;

struct TextCounts {
  int64_t values = 0;
  int64_t longest_string_bytes =
      0;  // as written, without quotes; strings that follow one another count as one
  int64_t longest_string_line = 0;  // on which it ends; the first line is 1
};
TextCounts CountText(absl::string_view text);

// kInvalidArgument (W0811 too many values, W0812 a string too long); `name` says which text, as in
// "job.textproto".
absl::Status CheckTextBounds(absl::string_view text, const std::string& name);

}  // namespace weir
