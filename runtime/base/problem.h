// The parts of an error, for those who show an error, send it, or add to it. An error that was made
// from problems (runtime/base/status.h) carries them beside its message, so nobody takes a message
// apart. The parts are as the message shows them: without control characters, and shortened where
// they were very long.
// Thread rule: pure functions over values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status.h"

namespace weir {

// Returns the error whose message is Format(problem).
absl::Status ErrorOf(absl::StatusCode status_code, const Problem& problem);
// Returns the error that has several problems, each on a line of its message.
absl::Status ErrorOfAll(absl::StatusCode status_code, const std::vector<Problem>& problems);
// Returns the error of a problem that one sentence tells: "W0522 rank 0: connects once". The
// sentence may have several lines, and is not made printable.
absl::Status CodedError(absl::StatusCode status_code, const std::string& code,
                        const std::string& sentence);
// Returns an error with the status code and the advice of `cause`: "W0514 at <where>: <the message
// of the cause>".
absl::Status CausedBy(const absl::Status& cause, const std::string& code, const std::string& where);

// Returns the problems of an error, in the order of its message; empty if the error was not made
// from any.
std::vector<Problem> ProblemsOf(const absl::Status& status);
// Returns the problem of an error that has just one.
std::optional<Problem> ProblemOf(const absl::Status& status);

// Returns the error that has these problems. ProblemsOf has returned them, here or in another
// process.
absl::Status WithProblems(absl::StatusCode status_code, const std::vector<Problem>& problems);
// Returns the same error with another status code.
absl::Status WithCode(absl::StatusCode status_code, const absl::Status& status);

// Returns "expected <expected>; found <found>". If `expected` is empty, returns what was found,
// which then is a whole sentence.
std::string FindingText(const Problem& problem);
// Returns the message up to the advice, without the last full stop: "W0203 at <where>: expected
// <expected>; found <found>".
std::string HeadText(const Problem& problem);
// Returns the whole message, with `before_advice` between the full stop and the advice.
std::string ProblemText(const Problem& problem, const std::string& before_advice = " ");

}  // namespace weir
