// Text that came from a file, another process or a model, made harmless for a terminal.
//
// Escape sequences can rewrite what a screen shows, and some terminals answer them as if the user
// had typed. Text in two directions can show another order than what is there. So what goes to
// people has, of control characters, line ends and tabs alone; others, U+0080 to U+009F, characters
// that steer the direction of text, and bytes that are no UTF-8 become \xNN, byte by byte, which
// nobody takes for a character of the text. Thread rule: values; a PrintableText is used by one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weir {

// The length of the UTF-8 character at `at`; 0 if none is there.
size_t Utf8CharacterAt(absl::string_view text, size_t at);

// Takes text in pieces, which may end within a character.
class PrintableText {
 public:
  enum class Lines : uint8_t { kKept, kEscaped };  // line ends and tabs
  explicit PrintableText(Lines lines) : lines_(lines) {}

  // Appends to `out` what is whole of what came so far. At most 3 bytes, of the begin of a
  // character, stay behind.
  void Add(absl::string_view piece, std::string* out);
  // The rest, at the end of the text.
  void End(std::string* out);

 private:
  void Take(bool is_end, std::string* out);

  const Lines lines_;
  std::string rest_;
};

// The whole of a text.
std::string Printable(absl::string_view text, PrintableText::Lines lines);

}  // namespace weir
