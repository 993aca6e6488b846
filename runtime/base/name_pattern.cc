#include "runtime/base/name_pattern.h"

#include <cstddef>

namespace weir {

bool FitsPattern(absl::string_view name, absl::string_view pattern, Wildcards wildcards) {
  const auto stands_for = [&](char wild, char c) {
    return wild == c || (wild == '?' && wildcards == Wildcards::kStarAndQuestionMark);
  };
  // The last star, and the place in the name up to which it reaches so far.
  size_t n = 0, p = 0, star = absl::string_view::npos, reached = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      reached = n;
    } else if (p < pattern.size() && stands_for(pattern[p], name[n])) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++reached;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

}  // namespace weir
