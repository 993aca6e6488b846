// Errors as values: how every folder of Weir reports what went wrong.
//
// A Problem says where, what was expected, what was found and what to try; it
// becomes an absl::Status whose code tells the exit code of the CLI:
//   kInvalidArgument  65  the job is rejected
//   kNotFound         66  an input is missing
//   kDataLoss         66  an input is damaged
//   kUnavailable, kDeadlineExceeded  69  the machine refused something, or a process or connection
//   failed kInternal, other  70  our own fault
// Codes ("W0203") have a page each in docs/errors/. Thread rule: values, no state.
#pragma once

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

struct Problem {
  std::string code;   // "W0203"
  std::string where;  // "job.textproto:12:3", "function block, node q"
  std::string expected;
  std::string found;
  std::string hint;  // the nearest legal choice, or what to try; may be empty
};

// "W0203 at <where>: expected <expected>; found <found>. Try: <hint>." On one line: control
// characters are escaped and what is very long is shortened, since parts come from files.
std::string Format(const Problem& problem);

absl::Status Rejected(const Problem& problem);  // kInvalidArgument
absl::Status Missing(const Problem& problem);   // kNotFound
absl::Status Damaged(const Problem& problem);   // kDataLoss

// Adds the outer place that a callee does not know: "W0203: …" becomes "W0203 at <where>: …",
// "W0203 at x: …" becomes "W0203 at <where>, x: …". OK stays OK.
absl::Status At(const std::string& where, const absl::Status& status);

// The exit code of the CLI for `status` (table above).
int ExitCode(const absl::Status& status);

// The candidate nearest to `word` by edit distance; if none is near, the longest of at least 3
// characters that begins `word`
// ("sub" for "subtract"); or "" if there is none, or `word` is very long.
inline constexpr size_t kNearestWordMax = 256;
template <typename Range>
std::string Nearest(const std::string& word, const Range& candidates);
int EditDistance(const std::string& a, const std::string& b);

template <typename Range>
std::string Nearest(const std::string& word, const Range& candidates) {
  std::string best;
  if (word.size() > kNearestWordMax) return best;
  int best_distance = static_cast<int>(word.size()) / 3 + 2;
  for (const auto& candidate : candidates) {
    if (candidate.size() >= word.size() + best_distance) continue;
    int distance = EditDistance(word, std::string(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = std::string(candidate);
    }
  }
  if (!best.empty()) return best;
  constexpr size_t kBeginningMin = 3;
  for (const auto& candidate : candidates) {
    const std::string beginning(candidate);
    if (beginning.size() < std::max(kBeginningMin, best.size() + 1) ||
        word.compare(0, beginning.size(), beginning) != 0)
      continue;
    best = beginning;
  }
  return best;
}

}  // namespace weir

#define WEIR_STATUS_CONCAT_INNER(a, b) a##b
#define WEIR_STATUS_CONCAT(a, b) WEIR_STATUS_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` is an error.
#define WEIR_RETURN_IF_ERROR(expr)                                                \
  do {                                                                            \
    if (absl::Status weir_status = (expr); !weir_status.ok()) return weir_status; \
  } while (false)

// WEIR_ASSIGN_OR_RETURN(auto x, MaybeX());
#define WEIR_ASSIGN_OR_RETURN(lhs, expr) \
  WEIR_ASSIGN_OR_RETURN_IMPL(WEIR_STATUS_CONCAT(weir_statusor_, __LINE__), lhs, expr)
#define WEIR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = std::move(tmp).value()
