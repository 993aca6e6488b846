// The only place through which a command writes text for people while it works: lines that stay,
// from any thread, and on a terminal one redrawn line at the bottom. A line is never broken by
// another line, nor by the redrawn line, which makes room and comes back below. The output has no
// control characters except its line ends (runtime/base/printable_text.h), whatever its source. Not
// here: the text of the lines (tools/train/progress.h, tools/launch/worker_output.h); results,
// which go to standard output. Thread rule: Console any thread; a ConsoleLines one thread at a
// time, any number of them beside each other.
#pragma once

#include <cstddef>
#include <functional>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/mutex.h"
#include "runtime/base/printable_text.h"

namespace weir::console {

class Console {
 public:
  enum class Style : uint8_t { kTerminal, kPlain };

  // `out` must outlive this object, and nothing else may write to it meanwhile. `columns` returns
  // the width of the terminal each time that the line is drawn, because the width may change; null
  // or 0: not known.
  Console(Style style, std::ostream* out, std::function<int()> columns = nullptr)
      : style_(style), out_(out), columns_(std::move(columns)) {}
  ~Console() { EndStatus(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  Style style() const { return style_; }

  // Writes lines that stay; `text` ends with a newline or gets one. On a terminal of known width,
  // lines that begin with WARNING or ERROR are broken to fit, as errors are; all other lines stay
  // whole, because they may be the output of programs.
  void Say(absl::string_view text);
  // Shows a line. On a terminal the line replaces the redrawn line; elsewhere the line stays, as
  // with Say. All `forms` have the same content, the fullest first. A terminal shows the first form
  // that fits, or the last form cut; elsewhere the first form stays. Precondition: one form or
  // more.
  void ShowStatus(std::vector<std::string> forms);
  // Leaves the redrawn line on the screen.
  void EndStatus();

 private:
  int Columns() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Style style_;
  Mutex mutex_;
  std::ostream* const out_ ABSL_PT_GUARDED_BY(mutex_);
  const std::function<int()> columns_ ABSL_GUARDED_BY(mutex_);
  // The forms of the redrawn line; empty: none is shown.
  std::vector<std::string> status_ ABSL_GUARDED_BY(mutex_);
};

// A stream of lines for a console. Each line goes to the console when it is complete, and the last
// line at the end.
class ConsoleLines final : public std::ostream {
 public:
  // `console` must outlive this.
  explicit ConsoleLines(Console* console) : std::ostream(nullptr), buffer_(console) {
    rdbuf(&buffer_);
  }
  ~ConsoleLines() override { buffer_.SayRest(); }

 private:
  class Buffer final : public std::streambuf {
   public:
    explicit Buffer(Console* console) : console_(console) {}
    void SayRest();

   private:
    int overflow(int c) override;
    std::streamsize xsputn(const char* bytes, std::streamsize count) override;

    Console* console_;
    std::string rest_;  // a line without its end
  };
  Buffer buffer_;
};

// A stream in front of another stream, which gets every text in printable form (printable_text.h).
class PrintableStream final : public std::ostream {
 public:
  // `behind` must outlive this.
  explicit PrintableStream(std::ostream* behind) : std::ostream(nullptr), buffer_(behind) {
    rdbuf(&buffer_);
  }
  ~PrintableStream() override;

 private:
  class Buffer final : public std::streambuf {
   public:
    explicit Buffer(std::ostream* out) : out_(out), printable_(PrintableText::Lines::kKept) {}
    void WriteRest();

   private:
    int overflow(int c) override;
    std::streamsize xsputn(const char* bytes, std::streamsize count) override;
    int sync() override;

    std::ostream* const out_;
    PrintableText printable_;
  };
  Buffer buffer_;
};

// Returns the width of the terminal at a descriptor; 0 if the descriptor is no terminal.
int TerminalColumns(int descriptor);
// Returns the width of text for people: the width of the terminal, or kColumnsWithoutTerminal
// (runtime/base/wrap_text.h) if the descriptor is no terminal.
int TextColumns(int descriptor);

}  // namespace weir::console
