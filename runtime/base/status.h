// Errors are values: every folder of Weir reports errors in this way.
//
// A Problem says where, what was expected, what was found and what to try. A Problem becomes an
// absl::Status whose code decides the exit code of the CLI:
//   kInvalidArgument  65  the job is rejected
//   kNotFound         66  an input is missing, or an output cannot be written
//   kDataLoss         66  an input is damaged
//   kUnavailable, kDeadlineExceeded
//                     69  the machine refused something, or a process or connection failed
//   kInternal, other  70  a fault of Weir itself
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

// Returns "W0203 at <where>: expected <expected>; found <found>. Try: <hint>." on one line. Control
// characters are escaped and very long parts are shortened, since parts come from files.
std::string Format(const Problem& problem);

absl::Status Rejected(const Problem& problem);  // kInvalidArgument
absl::Status Missing(const Problem& problem);   // kNotFound
absl::Status Damaged(const Problem& problem);   // kDataLoss

// Adds the outer place, which a callee does not know: "W0203: …" becomes "W0203 at <where>: …", and
// "W0203 at x: …" becomes "W0203 at <where>, x: …". OK stays OK.
absl::Status At(const std::string& where, const absl::Status& status);

// Returns the exit code of the CLI for `status` (table above).
int ExitCode(const absl::Status& status);

// Returns the candidate nearest to `word` by edit distance. If no candidate is near, returns the
// longest candidate of at least 3 characters that begins `word` ("sub" for "subtract"). Returns ""
// if there is none, or if `word` is very long.
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

// Use as WEIR_ASSIGN_OR_RETURN(auto x, MaybeX());
#define WEIR_ASSIGN_OR_RETURN(lhs, expr) \
  WEIR_ASSIGN_OR_RETURN_IMPL(WEIR_STATUS_CONCAT(weir_statusor_, __LINE__), lhs, expr)
#define WEIR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = std::move(tmp).value()
