// Finds names by a part of them. Nearest (status.h) finds names by their letters, and would answer
// "sub" to somebody who asks for "sum" and means "reduce_sum". Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

namespace weir {

// Shorter words are a part of too many names.
inline constexpr size_t kNamePartMin = 3;

// Returns the names of which `word` is a whole part between underscores ("reduce_mean" for "mean"),
// in their order. Empty for a word of fewer than kNamePartMin characters.
std::vector<std::string> NamesWithPart(const std::string& word,
                                       const std::vector<std::string>& names);

// Returns the names that contain `word` anywhere, in their order; if there are none, the longest
// name that `word` contains ("softmax" for "fused_softmax"). Words and names of fewer than
// kNamePartMin characters do not count.
std::vector<std::string> NamesLike(const std::string& word, const std::vector<std::string>& names);

// Returns the names of `names` that make `word` when they stand one after the other without a
// space, as few as possible: two or more, or none. Protobuf reads the list ["a" "b"], whose commas
// are forgotten, as the one name "ab".
std::vector<std::string> GluedNames(const std::string& word, const std::vector<std::string>& names);

// Returns what somebody who wrote `word` probably meant: "reduce_mean", "one of layer_norm,
// rms_norm", or "". Whole parts come first, then letters (Nearest) if more than half of the letters
// agree, then NamesLike.
std::string SuggestedNames(const std::string& word, const std::vector<std::string>& names);

}  // namespace weir
