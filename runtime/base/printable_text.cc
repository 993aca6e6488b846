#include "runtime/base/printable_text.h"

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr size_t kCharacterBytesMax = 4;

uint32_t CodeAt(absl::string_view text, size_t at, size_t length) {
  uint32_t code = static_cast<unsigned char>(text[at]);
  if (length > 1) code &= 0xffu >> (length + 1);
  for (size_t i = 1; i < length; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3f);
  return code;
}

bool IsHarmless(uint32_t code, PrintableText::Lines lines) {
  if (code == '\n' || code == '\t') return lines == PrintableText::Lines::kKept;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  // These are marks, embeddings, overrides and isolates of direction, and separators that some
  // terminals take for line ends.
  const bool steers = code == 0x61c || code == 0x200e || code == 0x200f ||
                      (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return !steers && code != 0xfeff;
}

size_t LengthByLead(unsigned char lead) {
  if (lead < 0x80) return 1;
  return lead >= 0xc2 && lead < 0xe0   ? 2
         : lead >= 0xe0 && lead < 0xf0 ? 3
         : lead >= 0xf0 && lead < 0xf5 ? 4
                                       : 0;
}

// Returns whether more bytes could still make the end of the text, from `at` on, a character.
bool MayGoOn(absl::string_view text, size_t at) {
  const size_t length = LengthByLead(static_cast<unsigned char>(text[at]));
  if (length == 0 || at + length <= text.size()) return false;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return false;
  }
  return true;
}

void AppendEscaped(absl::string_view bytes, std::string* out) {
  for (char byte : bytes)
    absl::StrAppend(out, "\\x", absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
}

}  // namespace

size_t Utf8CharacterAt(absl::string_view text, size_t at) {
  const size_t length = LengthByLead(static_cast<unsigned char>(text[at]));
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 0;
  }
  const uint32_t code = CodeAt(text, at, length);
  const bool overlong = (length == 3 && code < 0x800) ||
                        (length == kCharacterBytesMax && (code < 0x10000 || code > 0x10ffff));
  return overlong || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

void PrintableText::Add(absl::string_view piece, std::string* out) {
  rest_.append(piece.data(), piece.size());
  Take(false, out);
}

void PrintableText::End(std::string* out) { Take(true, out); }

void PrintableText::Take(bool is_end, std::string* out) {
  const absl::string_view text = rest_;
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8CharacterAt(text, at);
    if (length == 0 && !is_end && MayGoOn(text, at)) break;
    const absl::string_view bytes = text.substr(at, length == 0 ? 1 : length);
    if (length > 0 && IsHarmless(CodeAt(text, at, length), lines_)) {
      out->append(bytes.data(), bytes.size());
    } else {
      AppendEscaped(bytes, out);
    }
    at += bytes.size();
  }
  rest_.erase(0, at);
}

std::string Printable(absl::string_view text, PrintableText::Lines lines) {
  std::string out;
  PrintableText printable(lines);
  printable.Add(text, &out);
  printable.End(&out);
  return out;
}

}  // namespace weir
