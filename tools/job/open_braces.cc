#include "tools/job/open_braces.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weir::job {
namespace {

constexpr int64_t kTab = 8;

// Walks through a text by characters. A string or a comment is one step.
class Walk {
 public:
  explicit Walk(absl::string_view text) : text_(text) {}

  bool ends() const { return at_ >= text_.size(); }
  bool IsBefore(TextPlace place) const {
    return line_ < place.line || (line_ == place.line && column_ < place.column);
  }
  int64_t line() const { return line_; }
  size_t at() const { return at_; }

  // Returns the next character; a quote stands for a whole string, and '#' for a comment.
  // Precondition: !ends().
  char Next() {
    const char c = Step();
    if (c == '#') {
      while (!ends() && text_[at_] != '\n') Step();
    } else if (c == '"' || c == '\'') {
      while (!ends() && text_[at_] != '\n') {
        const char in_string = Step();
        if (in_string == c) break;
        if (in_string == '\\' && !ends()) Step();
      }
    }
    return c;
  }

 private:
  char Step() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      column_ = 0;
    } else {
      column_ += c == '\t' ? kTab - column_ % kTab : 1;
    }
    return c;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 0, column_ = 0;
};

bool IsOfName(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::string OpenBrace::Text() const {
  return absl::StrCat("`", field, field.empty() ? "" : " ", "{` of line ", line);
}

std::vector<OpenBrace> FindOpenBraces(absl::string_view text, TextPlace place) {
  std::vector<OpenBrace> open;
  int64_t deeper = 0;  // open braces beyond those in `open`
  std::string name;    // the last
  bool in_name = false;
  Walk walk(text);
  while (!walk.ends() && walk.IsBefore(place)) {
    const int64_t line = walk.line() + 1;
    const char c = walk.Next();
    if (IsOfName(c)) {
      if (!std::exchange(in_name, true)) name.clear();
      name.push_back(c);
      continue;
    }
    in_name = false;
    if (c == '{' || c == '<') {
      if (open.size() < kOpenBracesMax) {
        open.push_back({std::exchange(name, {}), line});
      } else {
        ++deeper;
      }
    } else if (c == '}' || c == '>') {
      if (deeper > 0) {
        --deeper;
      } else if (!open.empty()) {
        name = std::move(open.back().field);  // the next message of a list has the same
        open.pop_back();
      }
    }
  }
  return open;
}

std::optional<TextValue> FindValue(absl::string_view text, TextPlace place) {
  TextValue value;
  bool in_name = false;  // the last character is of a name
  bool pending = false;  // after the name of a field, before its colon
  bool awaited = false;  // after the colon, or in a list where an element may begin
  Walk walk(text);
  while (!walk.ends() && walk.IsBefore(place)) {
    const size_t at = walk.at();
    const char c = walk.Next();
    if (c == '#' || absl::ascii_isspace(static_cast<unsigned char>(c))) {
      in_name = false;
      continue;
    }
    const bool of_name = IsOfName(c);
    if (of_name && in_name) {
      if (pending) value.field.push_back(c);
      continue;
    }
    in_name = of_name;
    if (c == ':' && pending) {
      value.has_colon = awaited = true;
      pending = false;
    } else if (c == '[' && (awaited || pending)) {
      value.in_list = awaited = true;
      pending = false;
    } else if (value.in_list && c != ']' && c != '{' && c != '}') {
      awaited = c == ',';
    } else {
      value.in_list = awaited = false;
      pending = of_name && !absl::ascii_isdigit(static_cast<unsigned char>(c));
      if (pending) value = {std::string(1, c), at};
    }
  }
  if (!pending && !awaited) return std::nullopt;
  value.at = walk.at();
  return value;
}

bool IsAtEnd(absl::string_view text, TextPlace place) {
  Walk walk(text);
  while (!walk.ends()) {
    const bool before = walk.IsBefore(place);
    const char c = walk.Next();
    if (!before && c != '#' && !absl::ascii_isspace(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

}  // namespace weir::job
