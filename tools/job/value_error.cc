#include "tools/job/value_error.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace weir::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kFieldsShown = 6;

std::string Name(const FieldDescriptor* field) { return std::string(field->name()); }

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

// Returns the end of the string that begins with the quote at `at`.
size_t EndOfString(absl::string_view text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// Returns the end of the value at `at`, as its writer meant it: a string, or all up to a space or a
// separator outside brackets, such as f32[batch, hidden].
size_t EndOfValue(absl::string_view text, size_t at) {
  constexpr absl::string_view kOpening = "[(<", kClosing = "])>", kSeparators = ",;{}#\"'";
  if (at >= text.size()) return at;
  if (text[at] == '"' || text[at] == '\'') return EndOfString(text, at);
  const size_t begin = at;
  int64_t depth = 0;
  for (; at < text.size() && text[at] != '\n'; ++at) {
    const char c = text[at];
    if (kOpening.find(c) != kOpening.npos) {
      ++depth;
    } else if (kClosing.find(c) != kClosing.npos) {
      if (--depth < 0) break;
    } else if (depth == 0 && (IsSpace(c) || kSeparators.find(c) != kSeparators.npos)) {
      break;
    }
  }
  return std::max(at, begin + 1);
}

// A Token is a value as it was written.
struct Token {
  explicit Token(absl::string_view written) : text(written), content(written) {
    quoted = text.front() == '"' || text.front() == '\'';
    if (!quoted) return;
    content = text.substr(1);
    if (!content.empty() && content.back() == text.front()) content.pop_back();
  }

  // Returns whether quotes around the content make a string of it.
  bool CanBeString() const {
    return content.find_first_of("\"\\{") == std::string::npos && !content.empty() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(content[0])) ||
            absl::StrContains("_./-", content.substr(0, 1)));
  }

  std::string text;     // with quotes
  std::string content;  // without
  bool quoted = false;
};

std::string RangeText(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return " from -2^31 to 2^31 - 1";
    case FieldDescriptor::CPPTYPE_INT64: return " from -2^63 to 2^63 - 1";
    case FieldDescriptor::CPPTYPE_UINT32: return " from 0 to 2^32 - 1";
    default: return " from 0 to 2^64 - 1";
  }
}

bool IsWhole(const FieldDescriptor* field) {
  const FieldDescriptor::CppType type = field->cpp_type();
  return type == FieldDescriptor::CPPTYPE_INT32 || type == FieldDescriptor::CPPTYPE_INT64 ||
         type == FieldDescriptor::CPPTYPE_UINT32 || type == FieldDescriptor::CPPTYPE_UINT64;
}

bool IsReal(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
         field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
}

// Returns what a value of the field is.
std::string KindText(const FieldDescriptor* field) {
  if (field->message_type() != nullptr) {
    std::vector<std::string> fields = FieldNames(field->message_type());
    const bool more = fields.size() > kFieldsShown;
    if (more) fields.resize(kFieldsShown);
    if (fields.empty()) return "{}";
    return absl::StrCat("{ } with fields (", absl::StrJoin(fields, ", "), more ? ", …)" : ")");
  }
  if (field->enum_type() != nullptr)
    return absl::StrCat("one of ", absl::StrJoin(ValueNames(field->enum_type()), ", "));
  if (IsWhole(field)) return "a whole number";
  if (IsReal(field)) return "a number";
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  return "a string in quotes";
}

// Returns "true" or "false" as `word` says, or "" if it says neither.
std::string TruthOf(const std::string& word) {
  const std::string lower = absl::AsciiStrToLower(word);
  if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") return "true";
  return lower == "false" || lower == "no" || lower == "off" || lower == "0" ? "false" : "";
}

// Returns the content of the token as a value of the field, which has no fields itself; "" if the
// content is none.
std::string PlainValue(const FieldDescriptor* field, const Token& token) {
  if (field->enum_type() != nullptr) {
    const std::vector<std::string> names = ValueNames(field->enum_type());
    const std::string upper = absl::AsciiStrToUpper(token.content);
    return absl::c_linear_search(names, upper) ? upper : Nearest(upper, names);
  }
  double number = 0;
  if (IsWhole(field)) {
    constexpr double kExactMax = 9e15;
    if (!absl::SimpleAtod(token.content, &number)) return "";
    if (!(std::fabs(number) < kExactMax) || number != std::floor(number)) return "";
    return absl::StrCat(static_cast<int64_t>(number));
  }
  if (IsReal(field)) {
    const bool is_number = absl::SimpleAtod(token.content, &number) && std::isfinite(number);
    return is_number ? std::string(absl::StripAsciiWhitespace(token.content)) : "";
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return TruthOf(token.content);
  if (token.quoted) return token.text;
  return token.CanBeString() ? absl::StrCat("\"", token.content, "\"") : "";
}

// Returns whether the token has the form of a value of the field.
bool HasFormOf(const FieldDescriptor* field, const Token& token) {
  if (field->is_repeated() || field->message_type() != nullptr) return false;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return token.quoted;
  if (field->enum_type() != nullptr)
    return !token.quoted && field->enum_type()->FindValueByName(token.content) != nullptr;
  return !token.quoted && !PlainValue(field, token).empty();
}

// Returns the fields of `type` that the token probably is: the field of its name, or the only field
// whose values look like it. Returns "" if there is none.
std::string FieldsOf(const Descriptor* type, const Token& token) {
  if (const FieldDescriptor* named = type->FindFieldByName(token.content)) {
    if (named->message_type() != nullptr) return token.content + " {}";
    if (named->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return token.content + ": true";
  }
  std::vector<const FieldDescriptor*> fits;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const Descriptor* list = field->message_type();
    if (token.text.front() == '[' && list != nullptr && list->field_count() == 1 &&
        list->field(0)->is_repeated() && list->field(0)->message_type() == nullptr)
      return absl::StrCat(Name(field), " { ", Name(list->field(0)), ": ", token.text, " }");
    if (HasFormOf(field, token)) fits.push_back(field);
  }
  // A whole number is a real number, too, and 1 is true, too.
  for (const auto is_of_kind : {IsWhole, IsReal}) {
    if (absl::c_any_of(fits, is_of_kind))
      fits.erase(std::remove_if(fits.begin(), fits.end(),
                                [&](const FieldDescriptor* field) { return !is_of_kind(field); }),
                 fits.end());
  }
  const bool is_first = !fits.empty() && fits[0] == type->field(0);
  if (fits.size() != 1 && !is_first) return "";
  return absl::StrCat(Name(fits[0]), ": ", PlainValue(fits[0], token));
}

// Returns the field with the value that the token probably is, or "".
std::string Corrected(const FieldDescriptor* field, const Token& token) {
  if (field->message_type() == nullptr) {
    const std::string value = PlainValue(field, token);
    return value.empty() ? "" : absl::StrCat(Name(field), ": ", value);
  }
  const Descriptor* type = field->message_type();
  const std::string fields = FieldsOf(type, token);
  if (!fields.empty()) return absl::StrCat(Name(field), " { ", fields, " }");
  if (type->field_count() == 0) return Name(field) + " {}";
  return absl::StrCat(Name(field), " { ", Name(type->field(0)),
                      type->field(0)->message_type() == nullptr ? ": … }" : " { … } }");
}

}  // namespace

std::vector<std::string> FieldNames(const Descriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i)
    names.push_back(std::string(type->field(i)->name()));
  return names;
}

std::vector<std::string> ValueNames(const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i)
    names.push_back(std::string(type->value(i)->name()));
  return names;
}

std::string NearestOrAll(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest = Nearest(word, known);
  if (!nearest.empty()) return nearest;
  return !known.empty() && known.size() <= 16 ? "one of " + absl::StrJoin(known, ", ") : "";
}

const Descriptor* MessageAt(const std::vector<OpenBrace>& open, const Descriptor* root,
                            std::vector<const Descriptor*>* types) {
  *types = {root};
  for (const OpenBrace& brace : open) {
    const FieldDescriptor* of = types->back()->FindFieldByName(brace.field);
    if (of == nullptr || of->message_type() == nullptr) return nullptr;
    types->push_back(of->message_type());
  }
  return types->back();
}

std::optional<ValueError> ExplainValue(absl::string_view text, TextPlace place,
                                       const std::string& message, const Descriptor* root) {
  // The parser reports a wrong word for true or false at the place after the word.
  if (constexpr absl::string_view kNoBool = "Invalid value for boolean field \"";
      absl::StartsWith(message, kNoBool)) {
    const std::vector<std::string> quoted = absl::StrSplit(message, '"');
    if (quoted.size() < 4) return std::nullopt;
    const std::string truth = TruthOf(quoted[3]);
    return ValueError{absl::StrCat("true or false for `", quoted[1], "`"), quoted[3],
                      truth.empty() ? "" : absl::StrCat(quoted[1], ": ", truth), ""};
  }
  const bool is_range = absl::StartsWith(message, "Integer out of range");
  if (!is_range && !absl::StartsWith(message, "Expected")) return std::nullopt;
  const std::optional<TextValue> value = FindValue(text, place);
  std::vector<const Descriptor*> types;
  const Descriptor* type = MessageAt(FindOpenBraces(text, place), root, &types);
  const FieldDescriptor* field =
      !value.has_value() || type == nullptr ? nullptr : type->FindFieldByName(value->field);
  if (field == nullptr) return std::nullopt;
  size_t at = value->at;
  const bool needs_colon = !value->has_colon && field->message_type() == nullptr;
  if (needs_colon && at < text.size() && text[at] == '=') {
    while (++at < text.size() && IsSpace(text[at])) {
    }
  }
  const size_t end = EndOfValue(text, at);
  ValueError error;
  error.expected = needs_colon ? absl::StrCat("a colon after `", value->field, "`")
                               : absl::StrCat(KindText(field), is_range ? RangeText(field) : "",
                                              " for `", value->field, "`");
  error.found = end == value->at
                    ? "nothing"
                    : std::string(text.substr(value->at, EndOfValue(text, value->at) - value->at));
  if (is_range) return error;
  if (end == at) {
    // The value is missing. Only a message may be empty.
    if (field->message_type() != nullptr) error.hint = value->field + " {}";
  } else if (Token token(text.substr(at, end - at)); token.text != "}" && token.text != "]") {
    error.hint = Corrected(field, token);
    if (field->message_type() == nullptr && token.quoted && !needs_colon &&
        field->cpp_type() != FieldDescriptor::CPPTYPE_STRING)
      error.expected = absl::StrCat(KindText(field), " without quotes for `", value->field, "`");
  }
  if (error.hint.empty()) return error;
  if (value->in_list) {
    if (field->message_type() != nullptr) {
      error.hint.clear();
      return error;
    }
    error.hint = error.hint.substr(value->field.size() + 2);
  }
  const size_t begin = value->in_list ? at : value->field_at;
  error.corrected = absl::StrCat(text.substr(0, begin), error.hint, text.substr(end));
  return error;
}

}  // namespace weir::job
