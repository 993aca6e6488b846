// Compares names with patterns that people write. Thread rule: pure functions.
#pragma once

#include "absl/strings/string_view.h"

namespace weir {

enum class Wildcards {
  kStar,                 // `*` stands for any characters, also for none
  kStarAndQuestionMark,  // and `?` for one
};

// Returns whether all of `name` fits `pattern`.
bool FitsPattern(absl::string_view name, absl::string_view pattern, Wildcards wildcards);

}  // namespace weir
