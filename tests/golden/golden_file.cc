#include "tests/golden/golden_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace weir::golden {
namespace {

constexpr size_t kLinesBefore = 2;
constexpr size_t kLinesAfter = 6;

bool ReadAll(const std::string& path, std::string* text) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  text->assign(std::istreambuf_iterator<char>(in), {});
  return true;
}

void AppendLines(const char* mark, const std::vector<std::string>& lines, size_t from,
                 std::string* out) {
  for (size_t i = from; i < std::min(from + kLinesAfter, lines.size()); ++i)
    absl::StrAppend(out, mark, lines[i], "\n");
}

}  // namespace

std::string ReadGoldenInput(const std::string& path) {
  std::string text;
  EXPECT_TRUE(ReadAll(path, &text)) << "cannot read " << path;
  return text;
}

std::string FirstDifference(const std::string& expected, const std::string& found) {
  std::vector<std::string> want = absl::StrSplit(expected, '\n'), got = absl::StrSplit(found, '\n');
  size_t line = 0;
  while (line < want.size() && line < got.size() && want[line] == got[line]) ++line;
  if (line == want.size() && line == got.size()) return "";
  std::string text = absl::StrCat("line ", line + 1, ":\n");
  for (size_t i = line - std::min(line, kLinesBefore); i < line; ++i)
    absl::StrAppend(&text, "   ", want[i], "\n");
  AppendLines(" - ", want, line, &text);
  AppendLines(" + ", got, line, &text);
  return text;
}

void ExpectGolden(const std::string& path, const std::string& text) {
  if (const char* root = std::getenv("WEIR_UPDATE_GOLDEN")) {
    std::ofstream out(absl::StrCat(root, "/", path), std::ios::binary);
    out << text;
    ASSERT_TRUE(out.flush()) << "cannot write " << path;
    return;
  }
  std::string expected;
  ASSERT_TRUE(ReadAll(path, &expected))
      << "there is no " << path << "\nTo write it: tests/golden/update";
  std::string difference = FirstDifference(expected, text);
  EXPECT_TRUE(difference.empty())
      << path << " differs at " << difference
      << "If the change is meant: tests/golden/update, then review git diff tests/golden";
}

std::vector<std::string> NamesIn(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.size() < suffix.size() ||
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0)
      continue;
    names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  EXPECT_FALSE(error) << folder << ": " << error.message();
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weir::golden
