#include "runtime/base/wrap_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// Returns whether the word is a unit: "MiB" or "ms," after a number.
bool IsUnit(absl::string_view word) {
  while (!word.empty() && (word.back() == ',' || word.back() == ';' || word.back() == '.' ||
                           word.back() == ':' || word.back() == ')'))
    word.remove_suffix(1);
  for (const char* unit : {"B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "ms", "s", "%"}) {
    if (word == unit) return true;
  }
  return false;
}

// Returns the words of a line; a number and its unit are one word.
std::vector<std::string> WordsOf(absl::string_view line) {
  std::vector<std::string> words;
  for (absl::string_view word : absl::StrSplit(line, ' ')) {
    const bool after_number =
        !words.empty() && !words.back().empty() && absl::ascii_isdigit(words.back().back());
    if (after_number && IsUnit(word)) {
      absl::StrAppend(&words.back(), " ", word);
    } else {
      words.emplace_back(word);
    }
  }
  return words;
}

void WrapLine(absl::string_view line, int columns, int hanging, std::string* out) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::string next(
      std::min<size_t>(indent + static_cast<size_t>(hanging), static_cast<size_t>(columns) / 2),
      ' ');
  int at = 0;
  bool begins = true;
  for (const std::string& word : WordsOf(line.substr(indent))) {
    const int length = NumCharacters(word);
    if (begins) {
      absl::StrAppend(out, line.substr(0, indent), word);
      at = static_cast<int>(indent) + length;
      begins = false;
    } else if (at + 1 + length <= columns || word.empty()) {
      absl::StrAppend(out, " ", word);
      at += 1 + length;
    } else {
      while (!out->empty() && out->back() == ' ') out->pop_back();
      absl::StrAppend(out, "\n", next, word);
      at = static_cast<int>(next.size()) + length;
    }
  }
}

}  // namespace

int NumCharacters(absl::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), BeginsCharacter));
}

std::string WrapText(absl::string_view text, int columns, int hanging) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const absl::string_view line = text.substr(begin, end - begin);
    if (NumCharacters(line) <= columns) {
      absl::StrAppend(&out, line);
    } else {
      WrapLine(line, columns, hanging, &out);
    }
    if (end < text.size()) out.push_back('\n');
    begin = end + 1;
  }
  return out;
}

std::string CutText(absl::string_view text, int columns) {
  if (NumCharacters(text) <= columns) return std::string(text);
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (BeginsCharacter(text[i]) && ++characters == columns)
      return absl::StrCat(text.substr(0, i), "…");
  }
  return std::string(text);
}

}  // namespace weir
