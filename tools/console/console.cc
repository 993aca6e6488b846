#include "tools/console/console.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/printable_text.h"
#include "runtime/base/wrap_text.h"

namespace weir::console {
namespace {

// Breaks the lines that begin with WARNING or ERROR.
std::string WrapWarnings(absl::string_view text, int columns) {
  std::string wrapped;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const absl::string_view line = text.substr(0, end);
    const bool is_wrapped = absl::StartsWith(line, "WARNING") || absl::StartsWith(line, "ERROR");
    absl::StrAppend(&wrapped, is_wrapped ? WrapText(line, columns) : std::string(line));
    text.remove_prefix(end);
  }
  return wrapped;
}

// Returns the first `columns` characters of UTF-8 text; 0: all.
absl::string_view Fitting(absl::string_view text, int columns) {
  if (columns <= 0) return text;
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && ++characters > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

void Console::Say(absl::string_view text) {
  MutexLock lock(&mutex_);
  Erase();
  std::string lines = Printable(text, PrintableText::Lines::kKept);
  if (const int columns = Columns(); style_ == Style::kTerminal && columns > 0)
    lines = WrapWarnings(lines, columns);
  *out_ << lines;
  if (text.empty() || text.back() != '\n') out_->put('\n');
  Draw();
  out_->flush();
}

void Console::ShowStatus(std::vector<std::string> forms) {
  if (style_ == Style::kPlain) return Say(forms.front());
  MutexLock lock(&mutex_);
  Erase();
  for (std::string& form : forms) form = Printable(form, PrintableText::Lines::kEscaped);
  status_ = std::move(forms);
  Draw();
  out_->flush();
}

void Console::EndStatus() {
  MutexLock lock(&mutex_);
  if (status_.empty()) return;
  out_->put('\n');
  out_->flush();
  status_.clear();
}

// Returns 0 if the width is not known.
int Console::Columns() { return columns_ ? columns_() : 0; }

void Console::Erase() {
  if (!status_.empty()) *out_ << "\r\033[K";
}

// Draws the line one column short of the terminal, because a line as wide as the terminal would
// wrap and could not be erased.
void Console::Draw() {
  if (status_.empty()) return;
  const int columns = Columns() - 1;
  for (const std::string& form : status_) {
    if (columns <= 0 || NumCharacters(form) <= columns) {
      *out_ << form;
      return;
    }
  }
  *out_ << Fitting(status_.back(), columns);
}

void ConsoleLines::Buffer::SayRest() {
  if (!rest_.empty()) console_->Say(std::exchange(rest_, {}));
}

int ConsoleLines::Buffer::overflow(int c) {
  if (c == traits_type::eof()) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  xsputn(&byte, 1);
  return c;
}

std::streamsize ConsoleLines::Buffer::xsputn(const char* bytes, std::streamsize count) {
  rest_.append(bytes, static_cast<size_t>(count));
  const size_t end = rest_.rfind('\n');
  if (end != std::string::npos) {
    console_->Say(absl::string_view(rest_).substr(0, end + 1));
    rest_.erase(0, end + 1);
  }
  return count;
}

PrintableStream::~PrintableStream() { buffer_.WriteRest(); }

void PrintableStream::Buffer::WriteRest() {
  std::string text;
  printable_.End(&text);
  *out_ << text << std::flush;
}

int PrintableStream::Buffer::overflow(int c) {
  if (c == traits_type::eof()) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PrintableStream::Buffer::xsputn(const char* bytes, std::streamsize count) {
  std::string text;
  printable_.Add(absl::string_view(bytes, static_cast<size_t>(count)), &text);
  *out_ << text;
  return out_->good() ? count : 0;
}

int PrintableStream::Buffer::sync() {
  out_->flush();
  return out_->good() ? 0 : -1;
}

int TerminalColumns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int TextColumns(int descriptor) {
  constexpr int kColumnsMin = 20;  // of a terminal that reports less
  const int columns = TerminalColumns(descriptor);
  return columns > 0 ? std::max(columns, kColumnsMin) : kColumnsWithoutTerminal;
}

}  // namespace weir::console
