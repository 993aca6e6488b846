#include "tools/fleet/stall_lines.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

constexpr char kTitle[] = "Of these wait for ranks of other processes:";
// Few enough to be among the last lines that a starter keeps, and to be read.
constexpr int kLinesMax = 6;

}  // namespace

std::string WaitsForOthers(const std::string& stall) {
  std::string text;
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(stall, '\n')) {
    // Of a holder here the actor is named too.
    if (!absl::StrContains(line, ", held by rank ")) continue;
    if (++lines <= kLinesMax) absl::StrAppend(&text, "  ", absl::StripAsciiWhitespace(line), "\n");
  }
  if (lines == 0) return "";
  if (lines > kLinesMax) absl::StrAppend(&text, "  and ", lines - kLinesMax, " more\n");
  return absl::StrCat(kTitle, "\n", text);
}

std::vector<std::string> FindWaitsForOthers(const std::vector<std::string>& last_lines) {
  const auto title = std::find(last_lines.rbegin(), last_lines.rend(), kTitle);
  if (title == last_lines.rend()) return {};
  std::vector<std::string> lines;
  for (auto line = title.base(); line != last_lines.end() && absl::StartsWith(*line, "  "); ++line) {
    lines.emplace_back(absl::StripAsciiWhitespace(*line));
  }
  return lines;
}

}  // namespace weir
