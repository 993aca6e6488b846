#include "tools/fleet/stall_lines.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "actors/engine/wait_graph.h"

namespace weir {
namespace {

constexpr char kTitle[] = "Of these wait for ranks of other processes:";
// This number is small enough for the last lines that a starter keeps, and for a reader.
constexpr int kLinesMax = 6;

}  // namespace

std::string WaitsForOthers(const std::string& stall) {
  std::set<int> ranks_here;
  for (const absl::string_view line : absl::StrSplit(stall, '\n')) {
    if (const std::optional<Wait> wait = ParseWait(line); wait.has_value())
      ranks_here.insert(wait->who.rank);
  }
  std::string text;
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(stall, '\n')) {
    const std::optional<Wait> wait = ParseWait(line);
    if (!wait.has_value()) continue;
    const auto is_elsewhere = [&](const WaitNode& holder) {
      return ranks_here.count(holder.rank) == 0;
    };
    if (std::none_of(wait->holders.begin(), wait->holders.end(), is_elsewhere)) continue;
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
  for (auto line = title.base(); line != last_lines.end() && absl::StartsWith(*line, "  ");
       ++line) {
    lines.emplace_back(absl::StripAsciiWhitespace(*line));
  }
  return lines;
}

std::vector<std::string> ExplainLogs(const std::vector<std::string>& logs) {
  std::vector<Wait> waits;
  for (const std::string& log : logs) {
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      if (std::optional<Wait> wait = ParseWait(line); wait.has_value())
        waits.push_back(*std::move(wait));
    }
  }
  return ExplainWaits(waits);
}

}  // namespace weir
