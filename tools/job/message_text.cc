#include "tools/job/message_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/job/text_bounds.h"

namespace weir::job {
namespace {

constexpr size_t kErrorsMax = 10;
constexpr int kDepthMax = 16;

// Returns the text between the first pair of quotes after `from`, and moves `from` past it.
std::string NextQuoted(const std::string& text, size_t* from) {
  const size_t begin = text.find('"', *from);
  const size_t end = begin == std::string::npos ? begin : text.find('"', begin + 1);
  if (end == std::string::npos) return "";
  *from = end + 1;
  return text.substr(begin + 1, end - begin - 1);
}

// Turns the parser's messages into errors of Weir.
class MessageErrors : public google::protobuf::io::ErrorCollector {
 public:
  MessageErrors(const MessageText& of, const google::protobuf::DescriptorPool* pool)
      : of_(of), pool_(pool) {}
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (errors_.size() >= kErrorsMax) return;
    Problem problem{of_.code, absl::StrCat(of_.name, ":", line + 1, ":", column + 1), of_.expected,
                    message, of_.hint};
    size_t from = 0;
    if (message.find("has no field named") != std::string::npos) {
      const std::string type = NextQuoted(message, &from), field = NextQuoted(message, &from);
      problem.expected = absl::StrCat("a field of ", type.substr(type.rfind('.') + 1));
      problem.found = absl::StrCat("\"", field, "\"");
      if (const auto* known = pool_->FindMessageTypeByName(type)) {
        std::vector<std::string> names;
        for (int i = 0; i < known->field_count(); ++i)
          names.push_back(std::string(known->field(i)->name()));
        const std::string nearest = Nearest(field, names);
        problem.hint =
            nearest.empty() ? absl::StrCat("one of ", absl::StrJoin(names, ", ")) : nearest;
      }
    }
    errors_.push_back(std::move(problem));
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  const std::vector<Problem>& errors() const { return errors_; }

 private:
  const MessageText& of_;
  const google::protobuf::DescriptorPool* const pool_;
  std::vector<Problem> errors_;
};

}  // namespace

absl::Status ParseMessageText(const std::string& text, const MessageText& of,
                              google::protobuf::Message* message) {
  WEIR_RETURN_IF_ERROR(CheckTextBounds(text, of.name));
  MessageErrors errors(of, message->GetDescriptor()->file()->pool());
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kDepthMax);
  if (!parser.ParseFromString(text, message))
    return ErrorOfAll(absl::StatusCode::kInvalidArgument, errors.errors());
  return absl::OkStatus();
}

}  // namespace weir::job
