#include "runtime/base/status.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {

std::string Format(const Problem& problem) {
  std::string text = problem.code;
  if (!problem.where.empty()) absl::StrAppend(&text, " at ", problem.where);
  absl::StrAppend(&text, ": expected ", problem.expected, "; found ", problem.found, ".");
  if (!problem.hint.empty()) absl::StrAppend(&text, " Try: ", problem.hint, ".");
  return text;
}

absl::Status Rejected(const Problem& problem) {
  return absl::InvalidArgumentError(Format(problem));
}
absl::Status Missing(const Problem& problem) { return absl::NotFoundError(Format(problem)); }
absl::Status Damaged(const Problem& problem) { return absl::DataLossError(Format(problem)); }

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
      return 65;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return 66;
    default:
      return 70;
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
