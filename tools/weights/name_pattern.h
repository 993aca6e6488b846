// A NamePattern is a pattern of names of weights and tensors: "transformer.h.{i}.ln_1.weight".
//
// "{i}" (any word in braces) stands for a whole number: as many digits as there are. "{*}" stands
// for any text of at least one character, and occurs at most once. Matching takes time linear in
// the name, whatever the pattern. Thread rule: immutable values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir::weights {

inline constexpr size_t kPatternBytesMax = 1024;
inline constexpr size_t kPlaceholdersMax = 8;

// Captures hold what the placeholders of a pattern stand for, by their words ("i", "*").
using Captures = std::map<std::string, std::string>;

class NamePattern {
 public:
  // kInvalidArgument: the reason, as text without a code: an open brace, two "{*}", a word twice, a
  // placeholder right after another, or more than the bounds above.
  static absl::StatusOr<NamePattern> Parse(const std::string& text);

  const std::string& text() const { return text_; }
  bool has_placeholders() const { return !words_.empty(); }
  const std::vector<std::string>& words() const { return words_; }

  // Returns what the placeholders stand for if the pattern fits the whole name.
  std::optional<Captures> Match(absl::string_view name) const;
  // Returns the name with each placeholder replaced. A word that `captures` lacks stays in braces.
  std::string Fill(const Captures& captures) const;

 private:
  std::string text_;
  std::vector<std::string> literals_;  // one more than words_; around the placeholders
  std::vector<std::string> words_;
};

}  // namespace weir::weights
