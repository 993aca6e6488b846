#include "runtime/base/status.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr size_t kPartBytesMax = 1000;

std::string Printable(const std::string& part) {
  std::string text;
  for (char c : part.substr(0, kPartBytesMax)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppend(&text, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      text.push_back(c);
    }
  }
  return part.size() > kPartBytesMax ? absl::StrCat(text, "… (", part.size(), " bytes)") : text;
}

}  // namespace

std::string Format(const Problem& problem) {
  std::string text = problem.code;
  if (!problem.where.empty()) absl::StrAppend(&text, " at ", Printable(problem.where));
  absl::StrAppend(&text, ": expected ", Printable(problem.expected), "; found ",
                  Printable(problem.found), ".");
  if (!problem.hint.empty()) absl::StrAppend(&text, " Try: ", Printable(problem.hint), ".");
  return text;
}

absl::Status Rejected(const Problem& problem) {
  return absl::InvalidArgumentError(Format(problem));
}
absl::Status Missing(const Problem& problem) { return absl::NotFoundError(Format(problem)); }
absl::Status Damaged(const Problem& problem) { return absl::DataLossError(Format(problem)); }

absl::Status At(const std::string& where, const absl::Status& status) {
  if (status.ok()) return status;
  std::string message(status.message());
  const size_t code_length = 5;  // W0203
  const std::string place = absl::StrCat(" at ", Printable(where));
  bool has_code = message.size() > code_length + 4 && message[0] == 'W';
  if (has_code && message.compare(code_length, 2, ": ") == 0) {
    message.insert(code_length, place);
  } else if (has_code && message.compare(code_length, 4, " at ") == 0) {
    message.replace(code_length, 4, absl::StrCat(place, ", "));
  } else {
    message = absl::StrCat(Printable(where), ": ", message);
  }
  return absl::Status(status.code(), message);
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 0;
    case absl::StatusCode::kInvalidArgument: return 65;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss: return 66;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 69;  // the machine's: processes, descriptors, connections, time
    default: return 70;
  }
}

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace weir
