#include "tools/weights/name_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weir::weights {
namespace {

constexpr char kAny[] = "*";

bool IsWord(absl::string_view text) {
  return text == kAny || (!text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
         }));
}

// Removes the digits at the beginning of `name`, and returns them.
absl::string_view TakeDigits(absl::string_view* name) {
  size_t end = 0;
  while (end < name->size() && absl::ascii_isdigit(static_cast<unsigned char>((*name)[end]))) ++end;
  const absl::string_view digits = name->substr(0, end);
  name->remove_prefix(end);
  return digits;
}

absl::string_view TakeLastDigits(absl::string_view* name) {
  size_t begin = name->size();
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>((*name)[begin - 1]))) --begin;
  const absl::string_view digits = name->substr(begin);
  name->remove_suffix(digits.size());
  return digits;
}

absl::Status Wrong(const std::string& reason) { return absl::InvalidArgumentError(reason); }

}  // namespace

absl::StatusOr<NamePattern> NamePattern::Parse(const std::string& text) {
  if (text.empty()) return Wrong("an empty name");
  if (text.size() > kPatternBytesMax)
    return Wrong(absl::StrCat("a name of ", text.size(), " bytes; at most ", kPatternBytesMax,
                              " are legal"));
  NamePattern pattern;
  pattern.text_ = text;
  size_t at = 0;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', at)) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) return Wrong("a brace without its end");
    const std::string word = text.substr(open + 1, close - open - 1);
    if (!IsWord(word)) return Wrong(absl::StrCat("{", word, "}, which is no placeholder"));
    if (std::count(pattern.words_.begin(), pattern.words_.end(), word) > 0)
      return Wrong(absl::StrCat("{", word, "} twice"));
    if (!pattern.words_.empty() && open == at)
      return Wrong("two placeholders with nothing between them");
    if (pattern.words_.size() == kPlaceholdersMax)
      return Wrong(absl::StrCat("more than ", kPlaceholdersMax, " placeholders"));
    pattern.literals_.push_back(text.substr(at, open - at));
    pattern.words_.push_back(word);
    at = close + 1;
  }
  pattern.literals_.push_back(text.substr(at));
  return pattern;
}

std::optional<Captures> NamePattern::Match(absl::string_view name) const {
  Captures captures;
  size_t first = 0;  // the literal and the placeholder to match next
  while (true) {
    if (!absl::ConsumePrefix(&name, literals_[first])) return std::nullopt;
    if (first == words_.size()) return name.empty() ? std::optional(captures) : std::nullopt;
    if (words_[first] == kAny) break;
    const absl::string_view digits = TakeDigits(&name);
    if (digits.empty()) return std::nullopt;
    captures[words_[first]] = std::string(digits);
    ++first;
  }
  // What follows "{*}" is matched from the end.
  for (size_t last = words_.size();; --last) {
    if (!absl::ConsumeSuffix(&name, literals_[last])) return std::nullopt;
    if (last - 1 == first) break;
    const absl::string_view digits = TakeLastDigits(&name);
    if (digits.empty()) return std::nullopt;
    captures[words_[last - 1]] = std::string(digits);
  }
  if (name.empty()) return std::nullopt;
  captures[kAny] = std::string(name);
  return captures;
}

std::string NamePattern::Fill(const Captures& captures) const {
  std::string name = literals_[0];
  for (size_t i = 0; i < words_.size(); ++i) {
    const auto known = captures.find(words_[i]);
    absl::StrAppend(&name,
                    known == captures.end() ? absl::StrCat("{", words_[i], "}") : known->second,
                    literals_[i + 1]);
  }
  return name;
}

}  // namespace weir::weights
