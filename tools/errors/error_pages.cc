#include "tools/errors/error_pages.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/base/wrap_text.h"

namespace weir::errors {
namespace {

// Turns "w426" and "426" into "W0426"; any other text stays.
std::string FullCode(const std::string& text) {
  std::string code = absl::AsciiStrToUpper(text);
  const std::string digits = absl::StartsWith(code, "W") ? code.substr(1) : code;
  int number = 0;
  if (digits.empty() || digits.size() > 4 || !absl::SimpleAtoi(digits, &number) || number < 0)
    return code;
  return absl::StrFormat("W%04d", number);
}

// Returns the page whose code has the fewest different letters, and among several the one whose
// number is nearest.
std::string NearestCode(const std::string& code) {
  const auto number_of = [](const std::string& text) {
    return std::strtol(text.c_str() + (text.empty() ? 0 : 1), nullptr, 10);
  };
  std::string best;
  std::pair<int, long> best_distance;
  for (const ErrorPage& page : ErrorPages()) {
    const std::pair<int, long> distance{EditDistance(code.substr(0, kNearestWordMax), page.code),
                                        std::labs(number_of(code) - number_of(page.code))};
    if (!best.empty() && distance >= best_distance) continue;
    best = page.code;
    best_distance = distance;
  }
  return best;
}

// Turns a link of Markdown, "[save memory](../how_to/save_memory.md)", into "save memory
// (docs/how_to/save_memory.md)", and removes marks of bold text.
std::string PlainText(const std::string& markdown) {
  std::string text = absl::StrReplaceAll(markdown, {{"**", ""}});
  for (size_t middle = text.find("]("); middle != std::string::npos;
       middle = text.find("](", middle + 1)) {
    const size_t begin = text.rfind('[', middle), end = text.find(')', middle);
    if (begin == std::string::npos || end == std::string::npos) continue;
    std::string target = text.substr(middle + 2, end - middle - 2);
    target = absl::StartsWith(target, "../") ? absl::StrCat("docs/", target.substr(3))
                                             : absl::StrCat("docs/errors/", target);
    text.replace(begin, end + 1 - begin,
                 absl::StrCat(text.substr(begin + 1, middle - begin - 1), " (", target, ")"));
  }
  return text;
}

// Lists, tables and blocks of code keep their lines.
bool KeepsItsLine(absl::string_view line) {
  return line.empty() || absl::StartsWith(line, "|") || absl::StartsWith(line, "- ") ||
         absl::StartsWith(line, "```") || absl::StartsWith(line, "    ");
}

// Joins the lines of a paragraph into one line, which then breaks at the width of the terminal.
std::string JoinParagraphs(const std::string& body) {
  std::string text;
  bool in_code = false, joins = false;
  for (absl::string_view line : absl::StrSplit(body, '\n')) {
    const bool fence = absl::StartsWith(line, "```");
    const bool keeps = in_code || KeepsItsLine(line);
    if (fence) in_code = !in_code;
    absl::StrAppend(&text, text.empty() ? "" : joins && !keeps ? " " : "\n", line);
    joins = !keeps;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> ExplainError(const std::string& code, int columns) {
  const std::string full = FullCode(code);
  for (const ErrorPage& page : ErrorPages()) {
    if (page.code != full) continue;
    return WrapText(absl::StrCat(page.code, ": ", page.title, "\n\n",
                                 PlainText(JoinParagraphs(page.body)), "\n"),
                    columns, /*hanging=*/0);
  }
  return Rejected({"W0940", "weir explain", "the code of an error, such as W0426",
                   absl::StrCat("\"", code, "\""),
                   absl::StrCat("weir explain ", NearestCode(full),
                                ", or weir explain, which lists all codes")});
}

std::string ListErrors(int columns) {
  std::string text;
  for (const ErrorPage& page : ErrorPages())
    absl::StrAppend(&text, CutText(absl::StrCat(page.code, "  ", PlainText(page.title)), columns),
                    "\n");
  return text;
}

}  // namespace weir::errors
