// The pages of docs/errors, which the program carries with it, and how `weir explain` shows them.
// The build makes the table from the files, so page and program are always of the same version.
// Thread rule: pure functions over constant data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct ErrorPage {
  std::string code;   // "W0417"
  std::string title;  // "A parameter on both sides of a call"
  std::string body;   // the rest of the page, as Markdown
};

// In the order of their codes.
const std::vector<ErrorPage>& ErrorPages();

// The page of a code, written as "W0417", "w417" or "417", in lines of at most `columns`
// characters. kInvalidArgument (W0940, with the code that is nearest) if there is none.
absl::StatusOr<std::string> ExplainError(const std::string& code, int columns);

// One line for each page: code and title.
std::string ListErrors(int columns);

// The code that an error message begins with: "W0417" of "W0417 at ...: expected ..."; "" if it has
// none.
std::string CodeOf(const std::string& message);

}  // namespace weir
