#include "tools/console/console.h"

#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace weir::console {
namespace {

// Returns what a terminal of unlimited height shows for these bytes: carriage return, erase to the
// end of the line, newline, and lines that wrap at `columns`.
std::vector<std::string> Screen(const std::string& bytes, size_t columns) {
  std::vector<std::string> lines = {""};
  size_t at = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r') {
      at = 0;
    } else if (bytes[i] == '\n') {
      lines.emplace_back();
      at = 0;
    } else if (bytes.compare(i, 3, "\033[K") == 0) {
      lines.back().resize(std::min(at, lines.back().size()));
      i += 2;
    } else {
      if (at == columns) {
        lines.emplace_back();
        at = 0;
      }
      if (lines.back().size() <= at) lines.back().resize(at + 1, ' ');
      lines.back()[at++] = bytes[i];
    }
  }
  return lines;
}

TEST(ConsoleTest, LinesStayAboveTheLineThatIsRedrawn) {
  std::ostringstream out;
  {
    Console console(Console::Style::kTerminal, &out);
    console.ShowStatus({"step 1"});
    console.Say("first");
    console.ShowStatus({"step 2"});
    console.Say("second\nthird\n");
    EXPECT_EQ(Screen(out.str(), 80),
              (std::vector<std::string>{"first", "second", "third", "step 2"}));
    console.ShowStatus({"3"});
  }
  EXPECT_EQ(Screen(out.str(), 80), (std::vector<std::string>{"first", "second", "third", "3", ""}));
}

TEST(ConsoleTest, ALineThatIsRedrawnNeverWraps) {
  std::ostringstream out;
  int columns = 10;
  Console console(Console::Style::kTerminal, &out, [&columns] { return columns; });
  console.ShowStatus({"0123456789abcdef"});
  console.ShowStatus({"an ümlaut is one column"});
  console.Say("said");
  const std::vector<std::string> screen = Screen(out.str(), 12);
  ASSERT_EQ(screen.size(), 2u);
  EXPECT_EQ(screen[0], "said");
  EXPECT_EQ(screen[1], "an ümlaut");
}

TEST(ConsoleTest, OnATerminalWarningsAreBrokenAtItsWidthAndOtherLinesAreNot) {
  const auto said = [](Console::Style style, int columns) {
    std::ostringstream out;
    Console console(style, &out, [columns] { return columns; });
    console.Say("WARNING: one two three four\nno warning, but long enough\n");
    console.Say("ERROR: one two three four");
    return out.str();
  };
  const std::string whole =
      "WARNING: one two three four\nno warning, but long enough\nERROR: one two three four\n";
  EXPECT_EQ(said(Console::Style::kTerminal, 20),
            "WARNING: one two\n  three four\nno warning, but long enough\nERROR: one two three\n"
            "  four\n");
  EXPECT_EQ(said(Console::Style::kTerminal, 0), whole) << "the width is not known";
  EXPECT_EQ(said(Console::Style::kPlain, 20), whole);
}

TEST(ConsoleTest, ElsewhereEveryLineIsPlain) {
  std::ostringstream out;
  Console console(Console::Style::kPlain, &out);
  console.ShowStatus({"step 1"});
  console.Say("said");
  console.EndStatus();
  EXPECT_EQ(out.str(), "step 1\nsaid\n");
}

TEST(ConsoleTest, AStreamHandsOverWholeLinesOnly) {
  std::ostringstream out;
  Console console(Console::Style::kPlain, &out);
  {
    ConsoleLines lines(&console), others(&console);
    lines << "a " << 1 << std::flush;
    others << "b\nc" << std::flush;
    EXPECT_EQ(out.str(), "b\n");
    lines << " d\n";
    EXPECT_EQ(out.str(), "b\na 1 d\n");
  }
  EXPECT_EQ(out.str(), "b\na 1 d\nc\n");
}

// A pseudo terminal. A thread reads everything that is written to it until it is closed.
class Terminal {
 public:
  Terminal() {
    winsize size{};
    size.ws_col = 60;
    size.ws_row = 24;
    if (::openpty(&ours_, &theirs_, nullptr, nullptr, &size) != 0) return;
    reader_ = std::thread([this] {
      char bytes[4096];
      for (ssize_t n; (n = ::read(ours_, bytes, sizeof(bytes))) > 0;)
        seen_.append(bytes, static_cast<size_t>(n));
    });
  }
  ~Terminal() {
    if (ours_ >= 0) ::close(ours_);
  }
  bool ok() const { return ours_ >= 0; }
  int descriptor() const { return theirs_; }
  std::string path() const { return absl::StrCat("/proc/self/fd/", theirs_); }
  // Closes the terminal and returns everything that was written.
  std::string Close() {
    ::close(theirs_);
    reader_.join();
    return seen_;
  }

 private:
  int ours_ = -1, theirs_ = -1;
  std::thread reader_;
  std::string seen_;
};

TEST(ConsoleTest, OnATerminalManyWritersBreakNoLine) {
  constexpr int kWriters = 4, kLines = 300;
  Terminal terminal;
  ASSERT_TRUE(terminal.ok());
  EXPECT_EQ(TerminalColumns(terminal.descriptor()), 60);
  {
    std::ofstream out(terminal.path());
    ASSERT_TRUE(out.is_open());
    const int descriptor = terminal.descriptor();
    Console console(Console::Style::kTerminal, &out,
                    [descriptor] { return TerminalColumns(descriptor); });
    std::vector<std::thread> writers;
    for (int w = 0; w < kWriters; ++w) {
      writers.emplace_back([&console, w] {
        ConsoleLines lines(&console);
        for (int i = 0; i < kLines; ++i)
          lines << "[rank " << w << "] line " << i << std::flush << " of a worker\n";
      });
    }
    for (int i = 0; i < kLines; ++i)
      console.ShowStatus({absl::StrCat("step ", i, std::string(100, '.'))});
    for (std::thread& writer : writers) writer.join();
    console.Say("done");
  }
  std::vector<int> next(kWriters, 0);
  size_t num_lines = 0;
  const std::vector<std::string> screen = Screen(terminal.Close(), 60);
  for (const std::string& line : screen) {
    if (!absl::StartsWith(line, "[")) continue;
    ++num_lines;
    const int w = line[6] - '0';
    ASSERT_TRUE(w >= 0 && w < kWriters) << line;
    EXPECT_EQ(line, absl::StrCat("[rank ", w, "] line ", next[w]++, " of a worker"));
  }
  EXPECT_EQ(num_lines, size_t{kWriters * kLines});
  // The screen has only these lines, "done", and the last redrawn line, which stays.
  EXPECT_EQ(screen.size(), num_lines + 3);
  EXPECT_EQ(screen[num_lines], "done");
  EXPECT_EQ(screen[num_lines + 1], absl::StrCat("step ", kLines - 1, std::string(51, '.')));
}

TEST(ConsoleTest, NoTextControlsTheTerminal) {
  std::ostringstream out;
  Console console(Console::Style::kPlain, &out);
  console.Say("a\x1b[2Jb\xff");
  console.ShowStatus({"c\rd"});
  EXPECT_EQ(out.str(), "a\\x1b[2Jb\\xff\nc\\x0dd\n");
}

TEST(PrintableStreamTest, EscapesWhatIsNoTextAndKeepsWhatIs) {
  std::ostringstream out;
  {
    PrintableStream printable(&out);
    printable << "ö\x1b[31m" << 7 << '\n' << "\xe6" << std::flush << "\xa8\xa1" << '\xc3';
  }
  EXPECT_EQ(out.str(), "ö\\x1b[31m7\n模\\xc3");
}

TEST(PrintableStreamTest, AFailureBehindItShows) {
  std::ostringstream out;
  PrintableStream printable(&out);
  out.setstate(std::ios::badbit);
  printable << "text" << std::flush;
  EXPECT_FALSE(printable.good());
}

TEST(ConsoleTest, ShowsTheFullestFormThatFitsAndPlainlyTheFirst) {
  const std::vector<std::string> forms = {"step 1 of 10, loss 2.5", "1 of 10, loss 2.5",
                                          "1/10, 2.5"};
  const auto shown = [&](Console::Style style, int columns) {
    std::ostringstream out;
    {
      Console console(style, &out, [columns] { return columns; });
      console.ShowStatus(forms);
    }
    return out.str();
  };
  EXPECT_EQ(shown(Console::Style::kTerminal, 80), forms[0] + "\n");
  EXPECT_EQ(shown(Console::Style::kTerminal, 20), forms[1] + "\n");
  EXPECT_EQ(shown(Console::Style::kTerminal, 10), forms[2] + "\n");
  EXPECT_EQ(shown(Console::Style::kTerminal, 5), "1/10\n");
  EXPECT_EQ(shown(Console::Style::kPlain, 5), forms[0] + "\n");
}

}  // namespace
}  // namespace weir::console
