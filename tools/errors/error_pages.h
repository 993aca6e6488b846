// The pages of docs/errors, which the program contains, and their output for `weir explain`. The
// build makes the table from the files, so page and program always have the same version.
// Thread rule: pure functions over constant data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::errors {

struct ErrorPage {
  std::string code;   // "W0426"
  std::string title;  // "A parameter on both sides of a call"
  std::string body;   // the rest of the page, as Markdown
};

// Returns the pages in the order of their codes.
const std::vector<ErrorPage>& ErrorPages();

// Returns the page of a code, written as "W0426", "w426" or "426", in lines of at most `columns`
// characters. kInvalidArgument (W0940): there is no such page; the error names the nearest code.
absl::StatusOr<std::string> ExplainError(const std::string& code, int columns);

// Returns one line for each page: code and title.
std::string ListErrors(int columns);

}  // namespace weir::errors
