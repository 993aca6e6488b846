#include "tools/job/job_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/printable_text.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/input_file.h"
#include "sbp/mesh.h"
#include "tools/job/open_braces.h"
#include "tools/job/text_bounds.h"
#include "tools/job/value_error.h"

namespace weir::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr int kRecursionMax = 32;
constexpr size_t kErrorsMax = 10;
constexpr size_t kFieldsShown = 6;
constexpr char kAJob[] = "a job in protobuf text form (proto/job.proto)";
constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns the text between the first pair of quotes after `from`, and moves `from` past it.
std::string NextQuoted(const std::string& text, size_t* from) {
  size_t begin = text.find('"', *from);
  size_t end = begin == std::string::npos ? begin : text.find('"', begin + 1);
  if (end == std::string::npos) return "";
  *from = end + 1;
  return text.substr(begin + 1, end - begin - 1);
}

// Returns an enum that belongs to a field called `name` anywhere in the schema of a job and that
// lacks `value`.
const google::protobuf::EnumDescriptor* FindEnum(const Descriptor* type, const std::string& name,
                                                 int depth) {
  if (depth > 8) return nullptr;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->enum_type() != nullptr && field->name() == name) return field->enum_type();
    if (field->message_type() == nullptr) continue;
    if (auto* found = FindEnum(field->message_type(), name, depth + 1)) return found;
  }
  return nullptr;
}

// Turns the parser's messages into errors of Weir.
class ErrorCollector : public google::protobuf::io::ErrorCollector {
 public:
  // `name` is the place of the text, and `expected` says what the text should be, for messages. The
  // text is that of a message `root`, and must outlive this object. If `path` is not empty, the
  // text is the value of --set PATH=text.
  ErrorCollector(std::string name, std::string expected, absl::string_view text,
                 const Descriptor* root, std::string path = "")
      : name_(std::move(name)),
        expected_(std::move(expected)),
        text_(text),
        root_(root),
        path_(std::move(path)) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (errors_.size() >= kErrorsMax) return;
    Problem problem;
    problem.where = absl::StrCat(name_, ":", line + 1, ":", column + 1);
    size_t from = 0;
    if (message.find("has no field named") != std::string::npos) {
      std::string type = NextQuoted(message, &from), field = NextQuoted(message, &from);
      const Descriptor* descriptor =
          proto::Job::descriptor()->file()->pool()->FindMessageTypeByName(type);
      problem.code = "W0003";
      problem.expected = absl::StrCat("a field of ", type.substr(type.rfind('.') + 1));
      problem.found = "\"" + field + "\"";
      if (descriptor != nullptr) problem.hint = NearestOrAll(field, FieldNames(descriptor));
      AddMissingBrace({line, column}, field, &problem);
    } else if (message.find("Unknown enumeration value") == 0) {
      std::string value = NextQuoted(message, &from), field = NextQuoted(message, &from);
      const auto* type = FindEnum(proto::Job::descriptor(), field, 0);
      problem.code = "W0004";
      problem.expected = "a value of " + field;
      problem.found = "\"" + value + "\"";
      if (type != nullptr)
        problem.hint = NearestOrAll(absl::AsciiStrToUpper(value), ValueNames(type));
    } else {
      problem.code = "W0002";
      problem.expected = expected_;
      ExplainMessage({line, column}, message, &problem);
    }
    errors_.push_back(std::move(problem));
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}

  const std::vector<Problem>& errors() const { return errors_; }

 private:
  // Names the brace that probably lacks its end, if the text has too few ends and the field belongs
  // to a message around the one that it is in.
  void AddMissingBrace(TextPlace place, const std::string& field, Problem* problem) const {
    if (FindOpenBraces(text_, {}).empty()) return;
    const std::vector<OpenBrace> open = FindOpenBraces(text_, place);
    std::vector<const Descriptor*> types;
    if (MessageAt(open, root_, &types) == nullptr) return;
    for (size_t i = types.size() - 1; i-- > 0;) {
      if (types[i]->FindFieldByName(field) == nullptr) continue;
      std::vector<std::string> braces;
      for (size_t b = i; b < open.size(); ++b) braces.push_back(open[b].Text());
      absl::StrAppend(&problem->found, ", a field of ", std::string(types[i]->name()));
      problem->hint = absl::StrCat("a } before it for ", absl::StrJoin(braces, " and for "));
      return;
    }
  }

  // Fills in what was expected, what was found and what to try, of an error without a code of its
  // own.
  void ExplainMessage(TextPlace place, const std::string& message, Problem* problem) const {
    problem->found = std::string(absl::StripSuffix(message, "."));
    if (errors_.empty() && AddMissingEnd(place, message, problem)) return;
    size_t from = 0;
    const std::string first = NextQuoted(message, &from), second = NextQuoted(message, &from);
    if (absl::StartsWith(message, "Non-repeated field")) {
      problem->expected = absl::StrCat("`", first, "` once");
      problem->found = "it twice";
      problem->hint = absl::StrCat("leave out one `", first, "`");
    } else if (absl::StrContains(message, "another member of oneof")) {
      problem->expected = absl::StrCat("either `", second, "` or `", first, "`");
      problem->found = "both";
      problem->hint = "leave out one of them";
    } else if (const auto error = ExplainValue(text_, place, message, root_)) {
      problem->expected = error->expected;
      problem->found = error->found;
      problem->hint = error->hint;
      if (!path_.empty() && !error->corrected.empty())
        problem->hint = absl::StrCat("'", path_, "=", error->corrected, "'");
    } else if (absl::StartsWith(message, "Expected identifier, got: ")) {
      if (path_.empty()) problem->expected = "the name of a field";
      problem->found = problem->found.substr(problem->found.find(": ") + 2);
    } else if (path_.empty()) {
      problem->hint = "`weir zoo gpt > gpt.textproto` writes a job";
    }
  }

  // Names the brace that lacks its end, if the error is at the end of the text. Returns whether it
  // does.
  bool AddMissingEnd(TextPlace place, const std::string& message, Problem* problem) const {
    if (!absl::StartsWith(message, "Expected") || !IsAtEnd(text_, place)) return false;
    const std::vector<OpenBrace> open = FindOpenBraces(text_, {});
    if (open.empty()) return false;
    problem->found = "the end of the text";
    problem->hint = absl::StrCat("a } for ", open.back().Text());
    return true;
  }

  std::string name_, expected_;
  absl::string_view text_;
  const Descriptor* root_;
  std::string path_;
  std::vector<Problem> errors_;
};

// Returns the place of the first byte that begins no character, or text.size() if there is none. A
// NUL is no character of a text.
size_t FindNoCharacter(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = Utf8CharacterAt(text, at);
    if (length == 0 || text[at] == 0) break;
    at += length;
  }
  return at;
}

absl::Status CheckCharacters(const std::string& text, const std::string& name) {
  size_t at = FindNoCharacter(text);
  if (at == text.size()) return absl::OkStatus();
  int64_t line = 1 + std::count(text.begin(), text.begin() + at, '\n');
  size_t begin = text.rfind('\n', at);
  size_t column = begin == std::string::npos ? at + 1 : at - begin;
  return Rejected(
      {"W0002", absl::StrCat(name, ":", line, ":", column),
       "a job in protobuf text form (proto/job.proto), in UTF-8",
       absl::StrCat("byte 0x", absl::Hex(static_cast<unsigned char>(text[at]), absl::kZeroPad2)),
       "`weir zoo gpt > gpt.textproto` writes a job"});
}

// Checks what the parser takes and a job may not have. Escapes in strings ("\377") and values of
// --set may hold bytes that are no text, and a number in the place of a word may be no value.
absl::Status CheckValues(const Message& message, const std::string& where) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    const std::string name(field->name());
    for (int i = 0; i < count; ++i) {
      std::string place = absl::StrCat(where, where.empty() ? "" : ".", name,
                                       field->is_repeated() ? absl::StrCat("[", i, "]") : "");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        WEIR_RETURN_IF_ERROR(CheckValues(field->is_repeated()
                                             ? reflection->GetRepeatedMessage(message, field, i)
                                             : reflection->GetMessage(message, field),
                                         place));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        std::string copy;  // unused by the messages of a job, which hold their strings
        const std::string& text =
            field->is_repeated() ? reflection->GetRepeatedStringReference(message, field, i, &copy)
                                 : reflection->GetStringReference(message, field, &copy);
        if (FindNoCharacter(text) == text.size()) continue;
        return Rejected({"W0010", place, "text in UTF-8", "bytes that are none", ""});
      } else if (field->enum_type() != nullptr) {
        const int number = field->is_repeated()
                               ? reflection->GetRepeatedEnumValue(message, field, i)
                               : reflection->GetEnumValue(message, field);
        if (field->enum_type()->FindValueByNumber(number) != nullptr) continue;
        return Rejected({"W0004", place, absl::StrCat("a value of ", name), absl::StrCat(number),
                         NearestOrAll("", ValueNames(field->enum_type()))});
      }
    }
  }
  return absl::OkStatus();
}

constexpr char kNoJobFile[] = "W0006";
constexpr char kJobFile[] = "a job file";
constexpr char kStandardInput[] = "standard input";

// Reads from a descriptor until its end, or until one piece more than ParseJob takes. The text
// probably has `expected_bytes` bytes.
absl::StatusOr<std::string> ReadText(int descriptor, int64_t expected_bytes,
                                     const std::string& name) {
  constexpr size_t kPieceBytes = 65536;
  std::string text;
  text.reserve(static_cast<size_t>(std::min(expected_bytes, kJobBytesMax)) + kPieceBytes);
  while (static_cast<int64_t>(text.size()) <= kJobBytesMax) {
    const size_t before = text.size();
    text.resize(before + kPieceBytes);
    const ssize_t got = ::read(descriptor, text.data() + before, kPieceBytes);
    const int error = errno;
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
    if (got < 0 && error != EINTR)
      return Missing({kNoJobFile, name, kJobFile, ::strerror(error), ""});
  }
  return text;
}

absl::Status BadPath(const std::string& assignment, const std::string& expected,
                     const std::string& found, const std::string& hint) {
  return Rejected({"W0005", SetFlag(assignment), expected, found, hint});
}

// A PathStep is one step of a path: "dim[hidden]" has the field "dim" and the selector "hidden".
struct PathStep {
  std::string field;
  std::string selector;
  bool has_selector = false;
};

absl::StatusOr<std::vector<PathStep>> ParsePath(const std::string& assignment,
                                                const std::string& path) {
  std::vector<PathStep> steps;
  size_t at = 0;
  while (true) {
    PathStep step;
    while (at < path.size() && path[at] != '.' && path[at] != '[') step.field.push_back(path[at++]);
    if (at < path.size() && path[at] == '[') {
      size_t close = path.find(']', at);
      if (close == std::string::npos) return BadPath(assignment, "a ] for every [", path, "");
      step.selector = path.substr(at + 1, close - at - 1);
      step.has_selector = true;
      at = close + 1;
    }
    if (step.field.empty())
      return BadPath(assignment, "field names joined by dots", path, "training.steps=10");
    steps.push_back(step);
    if (at == path.size()) return steps;
    if (path[at] != '.') return BadPath(assignment, "a dot after ]", path, "");
    ++at;
  }
}

// Returns the text inside braces, if braces enclose all of it. A message may be written with or
// without braces.
std::string WithoutBraces(const std::string& value) {
  const absl::string_view text = absl::StripAsciiWhitespace(value);
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return value;
  return std::string(text.substr(1, text.size() - 2));
}

class FieldSetter {
 public:
  FieldSetter(const std::string& assignment, std::string value)
      : assignment_(assignment), value_(std::move(value)) {}

  absl::Status Set(const std::vector<PathStep>& steps, Message* message) {
    for (size_t i = 0; i < steps.size(); ++i) {
      WEIR_ASSIGN_OR_RETURN(const FieldDescriptor* field, FindField(*message, steps[i].field));
      if (i + 1 == steps.size()) return Assign(steps[i], field, message);
      WEIR_ASSIGN_OR_RETURN(message, Descend(steps[i], field, message));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<const FieldDescriptor*> FindField(const Message& message,
                                                   const std::string& name) const {
    const Descriptor* type = message.GetDescriptor();
    if (const FieldDescriptor* field = type->FindFieldByName(name)) return field;
    return BadPath(assignment_, absl::StrCat("a field of ", std::string(type->name())),
                   "\"" + name + "\"", NearestOrAll(name, FieldNames(type)));
  }

  // Returns the element of `field` that the step selects, by number or by its field `name`.
  absl::StatusOr<int> FindElement(const PathStep& step, const FieldDescriptor* field,
                                  const Message& message) const {
    const Reflection* reflection = message.GetReflection();
    int count = reflection->FieldSize(message, field);
    int index = -1;
    if (absl::SimpleAtoi(step.selector, &index)) {
      if (index >= 0 && index < count) return index;
      return BadPath(assignment_, absl::StrCat("an element of ", step.field, ", which has ", count),
                     step.selector, count > 0 ? absl::StrCat("0 to ", count - 1) : "");
    }
    std::vector<std::string> names;
    const FieldDescriptor* name_field =
        field->message_type() == nullptr ? nullptr : field->message_type()->FindFieldByName("name");
    for (int i = 0; name_field != nullptr && i < count; ++i) {
      const Message& element = reflection->GetRepeatedMessage(message, field, i);
      names.push_back(element.GetReflection()->GetString(element, name_field));
      if (names.back() == step.selector) return i;
    }
    return BadPath(assignment_, absl::StrCat("the number or name of an element of ", step.field),
                   "\"" + step.selector + "\"", NearestOrAll(step.selector, names));
  }

  absl::StatusOr<Message*> Descend(const PathStep& step, const FieldDescriptor* field,
                                   Message* message) const {
    const Reflection* reflection = message->GetReflection();
    if (field->message_type() == nullptr) {
      return BadPath(assignment_, step.field + " to have fields", "a plain value",
                     "end the path there");
    }
    if (!field->is_repeated()) {
      if (step.has_selector)
        return BadPath(assignment_, step.field + " without [ ], as it is not a list", "[ ]", "");
      return reflection->MutableMessage(message, field);
    }
    if (!step.has_selector)
      return BadPath(assignment_, "which element of the list", step.field, step.field + "[0]");
    WEIR_ASSIGN_OR_RETURN(int index, FindElement(step, field, *message));
    return reflection->MutableRepeatedMessage(message, field, index);
  }

  absl::Status Assign(const PathStep& step, const FieldDescriptor* field, Message* message) const {
    if (step.has_selector && !field->is_repeated()) {
      return BadPath(assignment_, step.field + " without [ ], as it is not a list", "[ ]", "");
    }
    if (field->message_type() != nullptr) return AssignMessage(step, field, message);
    const Reflection* reflection = message->GetReflection();
    // The value is parsed into a fresh message first, so that a bad value changes nothing.
    std::unique_ptr<Message> parsed(message->New());
    bool ok = true;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (field->is_repeated()) {
        reflection->AddString(parsed.get(), field, value_);
      } else {
        reflection->SetString(parsed.get(), field, value_);
      }
    } else {
      std::string text = field->enum_type() != nullptr ? absl::AsciiStrToUpper(value_) : value_;
      TextFormat::Parser parser;
      ErrorCollector ignored("", "", text, message->GetDescriptor());
      parser.RecordErrorsTo(&ignored);
      ok = parser.ParseFieldValueFromString(text, field, parsed.get());
    }
    if (!ok) {
      std::string hint =
          field->enum_type() != nullptr
              ? NearestOrAll(absl::AsciiStrToUpper(value_), ValueNames(field->enum_type()))
              : "";
      return BadPath(assignment_, absl::StrCat("a value of type ", field->type_name()),
                     "\"" + value_ + "\"", hint);
    }
    if (!step.has_selector) {
      // MergeFrom does not carry a proto3 zero over. Clearing the field first has the same effect.
      if (!field->is_repeated()) reflection->ClearField(message, field);
      message->MergeFrom(*parsed);
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(int index, FindElement(step, field, *message));
    message->MergeFrom(*parsed);
    int last = reflection->FieldSize(*message, field) - 1;
    reflection->SwapElements(message, field, index, last);
    reflection->RemoveLast(message, field);
    return absl::OkStatus();
  }

  absl::Status AssignMessage(const PathStep& step, const FieldDescriptor* field,
                             Message* message) const {
    const Reflection* reflection = message->GetReflection();
    Message* prototype = google::protobuf::MessageFactory::generated_factory()
                             ->GetPrototype(field->message_type())
                             ->New();
    std::unique_ptr<Message> parsed(prototype);
    TextFormat::Parser parser;
    std::vector<std::string> fields = FieldNames(field->message_type());
    if (fields.size() > kFieldsShown) fields.resize(kFieldsShown);
    const std::string expected =
        fields.empty()
            ? absl::StrCat("nothing but '", step.field, "={}': it has no fields")
            : absl::StrCat("fields of ", step.field, " (", absl::StrJoin(fields, ", "),
                           ") in protobuf text form, as in '", step.field, "=", fields[0], ": …'");
    const std::string text = WithoutBraces(value_);
    ErrorCollector collector(SetFlag(assignment_), expected, text, field->message_type(),
                             assignment_.substr(0, assignment_.size() - value_.size() - 1));
    parser.RecordErrorsTo(&collector);
    parser.SetRecursionLimit(kRecursionMax);
    if (!parser.ParseFromString(text, parsed.get())) {
      return ErrorOfAll(absl::StatusCode::kInvalidArgument, collector.errors());
    }
    Message* target = nullptr;
    if (!field->is_repeated()) {
      target = reflection->MutableMessage(message, field);
    } else if (!step.has_selector) {
      target = reflection->AddMessage(message, field);
    } else {
      WEIR_ASSIGN_OR_RETURN(int index, FindElement(step, field, *message));
      target = reflection->MutableRepeatedMessage(message, field, index);
    }
    target->GetReflection()->Swap(target, parsed.get());
    return absl::OkStatus();
  }

  const std::string& assignment_;
  std::string value_;
};

}  // namespace

absl::StatusOr<proto::Job> ParseJob(const std::string& with_mark, const std::string& name) {
  // Some editors start a text with a byte order mark, which is no part of the text.
  const std::string text(absl::StripPrefix(with_mark, kByteOrderMark));
  if (static_cast<int64_t>(text.size()) > kJobBytesMax) {
    return Rejected({"W0001", name, absl::StrCat("a job of at most ", kJobBytesMax, " bytes"),
                     absl::StrCat(text.size(), " bytes"),
                     "write repeated layers as one function with `repeat`"});
  }
  WEIR_RETURN_IF_ERROR(CheckCharacters(text, name));
  WEIR_RETURN_IF_ERROR(CheckTextBounds(text, name));
  proto::Job job;
  ErrorCollector collector(name, kAJob, text, proto::Job::descriptor());
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.SetRecursionLimit(kRecursionMax);
  if (!parser.ParseFromString(text, &job)) {
    if (collector.errors().empty()) {
      return Rejected({"W0002", name, kAJob, "something else", ""});
    }
    return ErrorOfAll(absl::StatusCode::kInvalidArgument, collector.errors());
  }
  WEIR_RETURN_IF_ERROR(At(name, CheckValues(job, "")));
  return job;
}

std::string JobName(const std::string& path) { return path == "-" ? kStandardInput : path; }

absl::StatusOr<proto::Job> ReadJobFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadJobText(path));
  return ParseJob(text, JobName(path));
}

absl::StatusOr<std::string> ReadJobText(const std::string& path) {
  if (path == "-") return ReadText(STDIN_FILENO, 0, kStandardInput);
  WEIR_ASSIGN_OR_RETURN(
      const store::InputFile file,
      store::InputFile::Open(
          path, {kNoJobFile, kJobFile,
                 "`weir zoo gpt > gpt.textproto` writes one; `-` reads it from a pipe"}));
  return ReadText(file.descriptor(), file.size(), path);
}

std::string SetFlag(const std::string& assignment) {
  constexpr size_t kBytesShown = 200;
  size_t end = std::min(kBytesShown, assignment.size());
  // The cut is before a character, not inside it: bytes 10xxxxxx are the rest of a character.
  while (end > 0 && end < assignment.size() && (assignment[end] & 0xC0) == 0x80) --end;
  return absl::StrCat("--set ", assignment.substr(0, end), end < assignment.size() ? "…" : "");
}

absl::Status SetField(const std::string& assignment, proto::Job* job) {
  // Finds the first '=' outside brackets.
  size_t equals = 0;
  for (int depth = 0; equals < assignment.size(); ++equals) {
    if (assignment[equals] == '[') ++depth;
    if (assignment[equals] == ']') --depth;
    if (assignment[equals] == '=' && depth == 0) break;
  }
  if (equals == assignment.size() || equals == 0) {
    return BadPath(assignment, "path=value", assignment, "training.steps=10");
  }
  const std::string value = assignment.substr(equals + 1), path = assignment.substr(0, equals);
  // Strings need no quotes here, so the whole value may be one string.
  if (static_cast<int64_t>(value.size()) > kTextStringBytesMax) {
    return Rejected({"W0812", absl::StrCat("--set ", path),
                     absl::StrCat("a value of at most ", kTextStringBytesMax, " bytes"),
                     absl::StrCat(value.size(), " bytes"), "say it in the job file"});
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<PathStep> steps, ParsePath(assignment, path));
  WEIR_RETURN_IF_ERROR(FieldSetter(assignment, value).Set(steps, job));
  return At(SetFlag(assignment), CheckValues(*job, ""));
}

absl::Status SetMesh(const std::string& text, proto::Job* job) {
  WEIR_ASSIGN_OR_RETURN(sbp::Mesh mesh, sbp::Mesh::Parse(text));
  WEIR_RETURN_IF_ERROR(mesh.Validate());
  job->mutable_mesh()->clear_axis();
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    proto::MeshAxisSpec* spec = job->mutable_mesh()->add_axis();
    spec->set_name(axis.name);
    spec->set_size(axis.size);
  }
  // An order of other axes is about another mesh.
  const std::vector<std::string> order(job->mesh().rank_order().begin(),
                                       job->mesh().rank_order().end());
  if (!mesh.OrderOf(order, "").ok()) job->mutable_mesh()->clear_rank_order();
  return absl::OkStatus();
}

}  // namespace weir::job
