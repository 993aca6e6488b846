#include "tools/hosts/host_list.h"

#include <arpa/inet.h>

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"

namespace weir::hosts {
namespace {

constexpr int kSlotsMax = 65'536;
constexpr size_t kNameBytesMax = 255;  // of DNS
constexpr char kLineHint[] =
    "one host on a line, such as `n1 slots=2`, or a pattern such as n[1-4]";
constexpr char kHostHint[] =
    "a name, an address or a pattern, with `:N` for its slots: a,b:2,n[1-4],[fe80::1]";

absl::Status NoHost(const std::string& where, const std::string& found) {
  return Rejected({"W0870", where, "a host", found, kHostHint});
}

bool IsDigits(absl::string_view text) {
  if (text.empty()) return false;
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

bool IsAddress6(const std::string& text) {
  // A zone ("%eth0") names an interface of this machine, which inet_pton does not know.
  in6_addr address;
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

// Names start with a letter, a digit or '_', because a word with '-' in front would be an option of
// the program that reaches the host.
bool IsName(const std::string& text) {
  if (text.empty() || text.size() > kNameBytesMax) return false;
  const auto first = static_cast<unsigned char>(text[0]);
  if (!absl::ascii_isalnum(first) && first != '_') return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_' &&
        c != '@')
      return false;
  }
  return true;
}

// Parses "1", "01-10" of a pattern's brackets, and adds the numbers with their zeros.
absl::Status AddNumbers(absl::string_view part, const std::string& pattern,
                        const std::string& where, std::vector<std::string>* numbers) {
  const std::vector<std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
  int64_t first = 0, last = 0;
  if (!IsDigits(ends.front()) || !IsDigits(ends.back()) ||
      !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
      last < first) {
    return Rejected({"W0870", where, "numbers and ascending ranges in the brackets",
                     absl::StrCat("'", pattern, "'"), "n[1-4,7]"});
  }
  if (last - first >= kHostsMax) {
    return Rejected({"W0870", where, absl::StrCat("at most ", kHostsMax, " hosts"),
                     absl::StrCat("'", pattern, "'"), ""});
  }
  for (int64_t number = first; number <= last; ++number) {
    std::string text = absl::StrCat(number);
    if (text.size() < ends.front().size()) text.insert(0, ends.front().size() - text.size(), '0');
    numbers->push_back(std::move(text));
  }
  return absl::OkStatus();
}

// A host or pattern with its slots, and where it stands.
struct Entry {
  std::string pattern;
  int slots = 0;
  std::string where;
};

absl::Status TakeSlots(const std::string& text, Entry* entry) {
  if (!IsDigits(text) || !absl::SimpleAtoi(text, &entry->slots) || entry->slots < 1 ||
      entry->slots > kSlotsMax) {
    return Rejected({"W0870", entry->where, absl::StrCat("slots from 1 to ", kSlotsMax),
                     absl::StrCat("'", text, "'"),
                     "the number of processes that the host takes: host:2 in a list, "
                     "`host slots=2` in a file, without spaces"});
  }
  return absl::OkStatus();
}

// Takes ":N" off the end of `text`, unless the colons are those of an IPv6 address.
absl::StatusOr<Entry> EntryOf(const std::string& text, const std::string& where) {
  Entry entry{text, 0, where};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || IsAddress6(text) || text.find(']', colon) != std::string::npos)
    return entry;
  WEIR_RETURN_IF_ERROR(TakeSlots(text.substr(colon + 1), &entry));
  entry.pattern = text.substr(0, colon);
  return entry;
}

absl::StatusOr<HostList> HostsOf(const std::vector<Entry>& entries, ListedBy by) {
  HostList hosts;
  std::map<std::string, std::string> seen;  // where each host stands
  for (const Entry& entry : entries) {
    WEIR_ASSIGN_OR_RETURN(std::vector<std::string> names,
                          ExpandPattern(entry.pattern, entry.where));
    for (std::string& name : names) {
      const auto [other, is_new] = seen.emplace(name, entry.where);
      if (!is_new) {
        return Rejected(
            {"W0871", entry.where, "each host once",
             absl::StrCat("'", name, "' again, which is also ", other->second),
             absl::StrCat("one entry with slots for several processes: ", EntryText(name, 2))});
      }
      if (hosts.size() == kHostsMax) {
        return Rejected(
            {"W0870", entry.where, absl::StrCat("at most ", kHostsMax, " hosts"), "more", ""});
      }
      hosts.push_back({std::move(name), entry.slots, entry.where, by});
    }
  }
  return hosts;
}

}  // namespace

std::string EntryText(const std::string& name, int slots) {
  if (slots == 0) return name;
  const bool is_bare = name.find(':') == std::string::npos;
  return absl::StrCat(is_bare ? "" : "[", name, is_bare ? ":" : "]:", slots);
}

std::vector<std::string> SplitPatterns(const std::string& text) {
  std::vector<std::string> patterns(1);
  bool in_brackets = false;
  for (char c : text) {
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    if (c == ',' && !in_brackets) {
      patterns.emplace_back();
    } else {
      patterns.back() += c;
    }
  }
  return patterns;
}

absl::StatusOr<std::vector<std::string>> ExpandPattern(const std::string& pattern,
                                                       const std::string& where) {
  if (IsAddress6(pattern)) return std::vector<std::string>{pattern};
  const size_t open = pattern.find('[');
  if (open == std::string::npos) {
    if (!IsName(pattern))
      return NoHost(where, pattern.empty() ? "nothing" : absl::StrCat("'", pattern, "'"));
    return std::vector<std::string>{pattern};
  }
  const size_t close = pattern.find(']', open);
  if (close == std::string::npos) {
    return Rejected({"W0870", where, "']' after '['", absl::StrCat("'", pattern, "'"), "n[1-4]"});
  }
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  if (open == 0 && close + 1 == pattern.size() && IsAddress6(inside))
    return std::vector<std::string>{inside};
  std::vector<std::string> numbers;
  for (absl::string_view part : absl::StrSplit(inside, ','))
    WEIR_RETURN_IF_ERROR(AddNumbers(part, pattern, where, &numbers));
  // The rest may have brackets too: r[1-2]n[1-4].
  std::vector<std::string> rests = {""};
  if (close + 1 < pattern.size()) {
    const std::string rest = pattern.substr(close + 1);
    if (rest.find('[') != std::string::npos) {
      WEIR_ASSIGN_OR_RETURN(rests, ExpandPattern(absl::StrCat("x", rest), where));
      for (std::string& text : rests) text.erase(0, 1);
    } else {
      rests = {rest};
    }
  }
  if (numbers.size() * rests.size() > static_cast<size_t>(kHostsMax)) {
    return Rejected({"W0870", where, absl::StrCat("at most ", kHostsMax, " hosts"),
                     absl::StrCat("'", pattern, "'"), ""});
  }
  std::vector<std::string> names;
  for (const std::string& number : numbers) {
    for (const std::string& rest : rests) {
      names.push_back(absl::StrCat(pattern.substr(0, open), number, rest));
      if (!IsName(names.back())) return NoHost(where, absl::StrCat("'", pattern, "'"));
    }
  }
  return names;
}

absl::StatusOr<HostList> ParseHosts(const std::string& text, const std::string& source,
                                    ListedBy by) {
  std::vector<Entry> entries;
  for (const std::string& pattern : SplitPatterns(text)) {
    const std::string trimmed(absl::StripAsciiWhitespace(pattern));
    WEIR_ASSIGN_OR_RETURN(Entry entry,
                          EntryOf(trimmed, absl::StrCat(source, ", entry ", entries.size() + 1)));
    entries.push_back(std::move(entry));
  }
  return HostsOf(entries, by);
}

absl::StatusOr<HostList> ParseHostFile(const std::string& text, const std::string& file) {
  std::vector<Entry> entries;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const std::string where = absl::StrCat(file, ", line ", number);
    // Most of these are the whole list of --hosts.
    if (SplitPatterns(words[0]).size() > 1)
      return Rejected({"W0870", where, "one host", absl::StrCat("'", words[0], "'"), kLineHint});
    WEIR_ASSIGN_OR_RETURN(Entry entry, EntryOf(words[0], where));
    for (size_t i = 1; i < words.size(); ++i) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(words[i], absl::MaxSplits('=', 1));
      if (field.first != "slots") {
        return Rejected({"W0870", where, "a host, and perhaps slots=N",
                         absl::StrCat("'", words[i], "'"), kLineHint});
      }
      if (entry.slots > 0) {
        return Rejected({"W0870", where, "the slots of a host once",
                         absl::StrCat("'", words[i], "' besides ", entry.slots), kLineHint});
      }
      WEIR_RETURN_IF_ERROR(TakeSlots(field.second, &entry));
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return NoHost(file, "no line with one");
  return HostsOf(entries, ListedBy::kFile);
}

absl::StatusOr<HostList> ReadHostFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::MappedFile> file,
                        store::MappedFile::Open(path, "host file"));
  if (file->size() > kHostFileBytesMax) {
    return Rejected({"W0870", path, absl::StrCat("at most ", kHostFileBytesMax, " bytes"),
                     absl::StrCat(file->size()), "a file that lists hosts, one on each line"});
  }
  return ParseHostFile(std::string(file->text()), path);
}

}  // namespace weir::hosts
