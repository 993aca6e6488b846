#include "runtime/base/status.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "runtime/base/problem.h"

namespace weir {
namespace {

constexpr size_t kPartBytesMax = 1000;
constexpr char kProblemsUrl[] = "weir/problems";
constexpr size_t kPartsPerProblem = 5;
constexpr absl::string_view kBetweenParts("\0", 1);

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

Problem Printable(const Problem& problem) {
  return {problem.code, Printable(problem.where), Printable(problem.expected),
          Printable(problem.found), Printable(problem.hint)};
}

}  // namespace

std::string FindingText(const Problem& problem) {
  if (problem.expected.empty()) return problem.found;
  return absl::StrCat("expected ", problem.expected, "; found ", problem.found);
}

std::string HeadText(const Problem& problem) {
  if (problem.where.empty() && problem.expected.empty())
    return absl::StrCat(problem.code, " ", problem.found);
  return absl::StrCat(problem.code, problem.where.empty() ? "" : " at ", problem.where, ": ",
                      FindingText(problem));
}

std::string ProblemText(const Problem& problem, const std::string& before_advice) {
  if (!problem.hint.empty())
    return absl::StrCat(HeadText(problem), ".", before_advice, "Try: ", problem.hint, ".");
  return absl::StrCat(HeadText(problem), problem.expected.empty() ? "" : ".");
}

std::string Format(const Problem& problem) { return ProblemText(Printable(problem)); }

absl::Status Rejected(const Problem& problem) {
  return ErrorOf(absl::StatusCode::kInvalidArgument, problem);
}
absl::Status Missing(const Problem& problem) {
  return ErrorOf(absl::StatusCode::kNotFound, problem);
}
absl::Status Damaged(const Problem& problem) {
  return ErrorOf(absl::StatusCode::kDataLoss, problem);
}

absl::Status ErrorOf(absl::StatusCode code, const Problem& problem) {
  return WithProblems(code, {Printable(problem)});
}

absl::Status ErrorOfAll(absl::StatusCode code, const std::vector<Problem>& problems) {
  std::vector<Problem> printable;
  for (const Problem& problem : problems) printable.push_back(Printable(problem));
  return WithProblems(code, printable);
}

absl::Status CodedError(absl::StatusCode code, const std::string& problem_code,
                        const std::string& sentence) {
  return WithProblems(code, {{.code = problem_code, .found = sentence}});
}

absl::Status CausedBy(const absl::Status& cause, const std::string& code,
                      const std::string& where) {
  Problem problem{.code = code, .where = where, .found = std::string(cause.message())};
  if (const std::optional<Problem> own = ProblemOf(cause); own.has_value() && !own->hint.empty()) {
    problem.found = HeadText(*own);
    problem.hint = own->hint;
  }
  return ErrorOf(cause.code(), problem);
}

absl::Status WithProblems(absl::StatusCode code, const std::vector<Problem>& problems) {
  std::vector<std::string> lines;
  std::vector<absl::string_view> parts;
  for (const Problem& p : problems) {
    lines.push_back(ProblemText(p));
    for (const std::string* part : {&p.code, &p.where, &p.expected, &p.found, &p.hint})
      parts.push_back(*part);
  }
  absl::Status status(code, absl::StrJoin(lines, "\n"));
  // Parts have no control characters, so a NUL between them is enough.
  status.SetPayload(kProblemsUrl, absl::Cord(absl::StrJoin(parts, kBetweenParts)));
  return status;
}

std::vector<Problem> ProblemsOf(const absl::Status& status) {
  std::vector<Problem> problems;
  const absl::optional<absl::Cord> payload = status.GetPayload(kProblemsUrl);
  if (!payload.has_value()) return problems;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), kBetweenParts);
  for (size_t i = 0; i + kPartsPerProblem <= parts.size(); i += kPartsPerProblem)
    problems.push_back({parts[i], parts[i + 1], parts[i + 2], parts[i + 3], parts[i + 4]});
  return problems;
}

std::optional<Problem> ProblemOf(const absl::Status& status) {
  std::vector<Problem> problems = ProblemsOf(status);
  if (problems.size() != 1) return std::nullopt;
  return std::move(problems.front());
}

absl::Status WithCode(absl::StatusCode code, const absl::Status& status) {
  const std::vector<Problem> problems = ProblemsOf(status);
  return problems.empty() ? absl::Status(code, status.message()) : WithProblems(code, problems);
}

absl::Status At(const std::string& where, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string place = Printable(where);
  std::vector<Problem> problems = ProblemsOf(status);
  if (problems.empty())
    return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
  Problem& first = problems.front();
  first.where = first.where.empty() ? place : absl::StrCat(place, ", ", first.where);
  return WithProblems(status.code(), problems);
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
