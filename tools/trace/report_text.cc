#include "tools/trace/report_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weir::trace {
namespace {

// Returns the columns on a screen: continuation bytes of a UTF-8 character take none.
size_t Columns(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Returns whether the word that ends before `dot` is the main function's name.
bool EndsWithMain(absl::string_view before) {
  if (!absl::EndsWith(before, "main")) return false;
  return before.size() == 4 ||
         !absl::ascii_isalnum(static_cast<unsigned char>(before[before.size() - 5]));
}

}  // namespace

std::string PercentText(double share) { return absl::StrFormat("%.1f %%", share * 100); }
std::string MillisecondsText(double ns) { return absl::StrFormat("%.3f ms", ns * 1e-6); }

std::string Counted(int64_t count, absl::string_view one, absl::string_view many) {
  if (count == 1) return absl::StrCat("1 ", one);
  return many.empty() ? absl::StrCat(count, " ", one, "s") : absl::StrCat(count, " ", many);
}

std::string LayerFamily(absl::string_view name) {
  std::string family;
  for (size_t i = 0; i < name.size(); ++i) {
    family.push_back(name[i]);
    size_t end = i + 1;
    while (end < name.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[end]))) ++end;
    const bool ends_word =
        end == name.size() ||
        !(absl::ascii_isalnum(static_cast<unsigned char>(name[end])) || name[end] == '_');
    if (name[i] != '.' || end == i + 1 || !ends_word || EndsWithMain(name.substr(0, i))) continue;
    family.push_back('*');
    i = end - 1;
  }
  return family;
}

std::string Listed(const std::vector<std::string>& names, size_t shown_max) {
  if (names.size() <= shown_max) return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown_max), ", "),
      " and ", names.size() - shown_max, " more");
}

void AppendLine(absl::string_view line, size_t indent, std::string* text) {
  std::string begin;  // of the present line
  while (Columns(begin) + Columns(line) > kReportColumns) {
    // Finds the last space that leaves the line short enough, or the first space if none does.
    size_t cut = absl::string_view::npos;
    for (size_t at = line.find_first_not_of(' ');
         (at = line.find(' ', at)) != absl::string_view::npos; ++at) {
      if (line.substr(at, 2) == " %") continue;  // stays with its number
      if (cut != absl::string_view::npos &&
          Columns(begin) + Columns(line.substr(0, at)) > kReportColumns)
        break;
      cut = at;
    }
    if (cut == absl::string_view::npos) break;
    absl::StrAppend(text, begin, line.substr(0, cut), "\n");
    line.remove_prefix(line.find_first_not_of(' ', cut) == absl::string_view::npos
                           ? line.size()
                           : line.find_first_not_of(' ', cut));
    begin.assign(indent, ' ');
    if (line.empty()) return;
  }
  absl::StrAppend(text, begin, line, "\n");
}

}  // namespace weir::trace
