// Makes text from a file, another process or a model harmless for a terminal.
//
// Escape sequences can rewrite the contents of a screen, and some terminals answer them as if the
// user had typed the answer. Text in two directions can show in an order other than its real order.
// Printable text therefore has no control characters but line ends and tabs. Other control
// characters, U+0080 to U+009F, characters that steer the direction of text, and bytes that are not
// UTF-8 become \xNN, byte by byte, which no reader takes for a character of the text.
// Thread rule: values; one thread at a time uses a PrintableText.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weir {

// Returns the length of the UTF-8 character at `at`; 0 if there is no character at `at`.
size_t Utf8CharacterAt(absl::string_view text, size_t at);

// A PrintableText takes text in pieces, which may end within a character.
class PrintableText {
 public:
  enum class Lines : uint8_t { kKept, kEscaped };  // line ends and tabs
  explicit PrintableText(Lines lines) : lines_(lines) {}

  // Appends to `out` the whole characters so far. At most 3 bytes, the begin of a character, stay
  // behind.
  void Add(absl::string_view piece, std::string* out);
  // Appends the rest, at the end of the text.
  void End(std::string* out);

 private:
  void Take(bool is_end, std::string* out);

  const Lines lines_;
  std::string rest_;
};

// Makes a whole text printable.
std::string Printable(absl::string_view text, PrintableText::Lines lines);

}  // namespace weir
