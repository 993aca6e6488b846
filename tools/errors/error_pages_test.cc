#include "tools/errors/error_pages.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/wrap_text.h"

namespace weir::errors {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ErrorPagesTest, EveryPageFitsATerminalAndSaysWhatToDo) {
  ASSERT_GT(ErrorPages().size(), 200u);
  for (const ErrorPage& page : ErrorPages()) {
    const absl::StatusOr<std::string> text = ExplainError(page.code, 80);
    ASSERT_TRUE(text.ok()) << page.code;
    EXPECT_THAT(*text, HasSubstr("What to do.")) << page.code;
    EXPECT_THAT(*text, Not(HasSubstr("**"))) << page.code;
    EXPECT_THAT(*text, Not(HasSubstr("]("))) << page.code;
    for (const auto& line : absl::StrSplit(*text, '\n')) {
      const std::string shown(line);
      // A word, a row of a table or a line of code may be longer.
      if (shown.find(' ') == std::string::npos || shown[0] == '|' || shown[0] == ' ') continue;
      EXPECT_LE(NumCharacters(shown), 80) << page.code << ": " << shown;
    }
  }
}

TEST(ErrorPagesTest, ACodeMayBeWrittenShort) {
  const std::string full = *ExplainError("W0426", 100);
  EXPECT_THAT(full, HasSubstr("W0426: "));
  EXPECT_EQ(*ExplainError("w426", 100), full);
  EXPECT_EQ(*ExplainError("426", 100), full);
}

TEST(ErrorPagesTest, AnUnknownCodeGetsTheNearestOne) {
  const absl::Status status = ExplainError("W0409", 100).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("Try: weir explain W0407"));
  EXPECT_FALSE(ExplainError("", 100).ok());
  EXPECT_FALSE(ExplainError("no code", 100).ok());
}

TEST(ErrorPagesTest, ALinkNamesItsFile) {
  EXPECT_THAT(*ExplainError("W0487", 1000), HasSubstr("save memory (docs/how_to/save_memory.md)"));
}

TEST(ErrorPagesTest, TheListHasALineForEachPage) {
  const std::vector<std::string> lines = absl::StrSplit(ListErrors(100), '\n');
  EXPECT_EQ(lines.size(), ErrorPages().size() + 1);  // and the empty line at the end
}

}  // namespace
}  // namespace weir::errors
