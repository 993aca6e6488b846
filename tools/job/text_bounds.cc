#include "tools/job/text_bounds.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::job {
namespace {

// Reads the text once, from one end to the other.
class Counter {
 public:
  explicit Counter(absl::string_view text) : text_(text) {}

  TextCounts Count() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        TakeString(c);
      } else if (c == '#') {
        SkipComment();
      } else {
        TakeOther(c);
      }
    }
    return counts_;
  }

 private:
  // Reads a string from its quote to the next quote without a backslash before it, or to the end of
  // the line, where the parser gives up.
  void TakeString(char quote) {
    ++counts_.values;
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n')
      at_ += text_[at_] == '\\' && at_ + 1 < text_.size() ? 2 : 1;
    at_ = std::min(at_, text_.size());
    run_bytes_ += static_cast<int64_t>(at_ - begin);
    if (run_bytes_ > counts_.longest_string_bytes) {
      counts_.longest_string_bytes = run_bytes_;
      counts_.longest_string_line = line_;
    }
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  void SkipComment() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  // Each message opens a bracket, each scalar follows a colon or, in a list, a comma.
  void TakeOther(char c) {
    if (c == '{' || c == '<' || c == ':' || c == ',') ++counts_.values;
    if (c == '\n') ++line_;
    if (!absl::ascii_isspace(static_cast<unsigned char>(c))) run_bytes_ = 0;
    ++at_;
  }

  const absl::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t run_bytes_ = 0;  // the strings that follow one another here
  TextCounts counts_;
};

constexpr char kValues[] = " values (messages, numbers, words and strings)";

}  // namespace

TextCounts CountText(absl::string_view text) { return Counter(text).Count(); }

absl::Status CheckTextBounds(absl::string_view text, const std::string& name) {
  const TextCounts counts = CountText(text);
  if (counts.values > kTextValuesMax) {
    return Rejected({"W0811", name, absl::StrCat("at most ", kTextValuesMax, kValues),
                     absl::StrCat(counts.values),
                     "write equal layers as one function with `repeat`"});
  }
  if (counts.longest_string_bytes > kTextStringBytesMax) {
    return Rejected({"W0812", absl::StrCat(name, ":", counts.longest_string_line),
                     absl::StrCat("strings of at most ", kTextStringBytesMax, " bytes"),
                     absl::StrCat(counts.longest_string_bytes, " bytes"), "a shorter name"});
  }
  return absl::OkStatus();
}

absl::Status CheckSetBounds(absl::string_view text, const std::vector<std::string>& assignments) {
  int64_t bytes = 0, values = 0;
  for (const std::string& assignment : assignments) {
    bytes += static_cast<int64_t>(assignment.size());
    values += 1 + CountText(assignment).values;
  }
  if (bytes > kSetBytesMax) {
    return Rejected({"W0812", "--set", absl::StrCat("at most ", kSetBytesMax, " bytes in all"),
                     absl::StrCat(bytes, " bytes"), "say it in the job file"});
  }
  // ParseJob has checked the text alone.
  if (!assignments.empty()) values += CountText(text).values;
  if (values > kTextValuesMax) {
    return Rejected({"W0811", "--set",
                     absl::StrCat("at most ", kTextValuesMax, kValues, " with those of the job"),
                     absl::StrCat(values), "write equal layers as one function with `repeat`"});
  }
  return absl::OkStatus();
}

}  // namespace weir::job
