// The one place through which a command writes what people read while it works: lines that
// stay, from any thread, and on a terminal one line at the bottom that is redrawn. A line is never
// broken by another, nor by the redrawn one, which makes room and comes back below.
// What is written has no control characters but its line ends (runtime/base/printable_text.h),
// wherever it came from. Not here: what the lines say (tools/train/progress.h,
// tools/launch/worker_output.h), results, which go to standard output. Thread rule: Console any
// thread; a ConsoleLines one thread at a time, any number of them beside each other.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/printable_text.h"

namespace weir {

class Console {
 public:
  enum class Style : uint8_t { kTerminal, kPlain };

  // `out` must outlive this, and nobody else writes to it meanwhile. `columns` says how wide the
  // terminal is, each time that the line is drawn, since it may change; null or 0: not known.
  Console(Style style, std::ostream* out, std::function<int()> columns = nullptr)
      : style_(style), out_(out), columns_(std::move(columns)) {}
  ~Console() { EndStatus(); }
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  Style style() const { return style_; }

  // Writes lines that stay; `text` ends with a newline or gets one.
  void Say(absl::string_view text);
  // On a terminal the line takes the place of the redrawn one; elsewhere it stays, as with Say.
  // `forms` say the same, the fullest first: a terminal shows the first that fits, or the last one
  // cut; elsewhere the first stays. Precondition: one form or more.
  void ShowStatus(std::vector<std::string> forms);
  // Leaves the redrawn line standing.
  void EndStatus();

 private:
  void Erase();
  void Draw();

  const Style style_;
  std::mutex mutex_;  // guards the rest
  std::ostream* const out_;
  const std::function<int()> columns_;
  std::vector<std::string> status_;  // forms of the redrawn line; empty: none is shown
};

// A stream of lines for a console: each goes there when it is whole, the last one at the end.
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
    std::string rest_;  // of a line without its end
  };
  Buffer buffer_;
};

// A stream in front of another, which gets every text as people may see it (printable_text.h).
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

// How wide the terminal at a descriptor is; 0 if that is none.
int TerminalColumns(int descriptor);
// The width of text for people: that of the terminal, kColumnsWithoutTerminal
// (runtime/base/wrap_text.h) if that is none.
int TextColumns(int descriptor);

}  // namespace weir
