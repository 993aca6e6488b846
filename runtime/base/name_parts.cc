#include "runtime/base/name_parts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir {

std::vector<std::string> NamesWithPart(const std::string& word,
                                       const std::vector<std::string>& names) {
  std::vector<std::string> found;
  if (word.size() < kNamePartMin) return found;
  const std::string part = "_" + word + "_";
  for (const std::string& name : names) {
    if (("_" + name + "_").find(part) != std::string::npos) found.push_back(name);
  }
  return found;
}

std::vector<std::string> NamesLike(const std::string& word, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::string longest;
  if (word.size() < kNamePartMin) return found;
  for (const std::string& name : names) {
    if (name.find(word) != std::string::npos) found.push_back(name);
    if (name.size() >= kNamePartMin && name.size() > longest.size() &&
        word.find(name) != std::string::npos)
      longest = name;
  }
  if (found.empty() && !longest.empty()) found.push_back(longest);
  return found;
}

std::vector<std::string> GluedNames(const std::string& word,
                                    const std::vector<std::string>& names) {
  if (word.size() > kNearestWordMax) return {};
  // The last of the fewest names that make the first `end` characters, and how many there are.
  struct Made {
    const std::string* last = nullptr;
    size_t count = 0;
  };
  std::vector<Made> made(word.size() + 1);
  for (size_t end = 1; end <= word.size(); ++end) {
    for (const std::string& name : names) {
      if (name.empty() || name.size() > end) continue;
      const size_t begin = end - name.size();
      const Made& before = made[begin];
      if ((begin > 0 && before.last == nullptr) || word.compare(begin, name.size(), name) != 0)
        continue;
      if (made[end].last == nullptr || before.count + 1 < made[end].count)
        made[end] = {&name, before.count + 1};
    }
  }
  if (made[word.size()].count < 2) return {};
  std::vector<std::string> parts;
  for (size_t end = word.size(); end > 0; end -= parts.front().size())
    parts.insert(parts.begin(), *made[end].last);
  return parts;
}

std::string SuggestedNames(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() > kNearestWordMax) return "";
  std::vector<std::string> found = NamesWithPart(word, names);
  if (found.empty()) {
    // A name that shares less than half of its letters with the word is a guess and no help.
    const std::string nearest = Nearest(word, names);
    if (!nearest.empty() && 2 * EditDistance(word, nearest) < static_cast<int>(word.size()))
      return nearest;
    found = NamesLike(word, names);
  }
  return absl::StrCat(found.size() > 1 ? "one of " : "", absl::StrJoin(found, ", "));
}

}  // namespace weir
