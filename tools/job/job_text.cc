#include "tools/job/job_text.h"

#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"

namespace weir::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr size_t kLineMax = 140;

std::string CommentAboveMain(const proto::Graph& graph) {
  const std::string loss = graph.loss().empty() ? "loss" : graph.loss();
  return absl::StrCat("The function that is the model; ",
                      graph.without_loss()
                          ? "its outputs are the results, and no loss is minimised."
                          : absl::StrCat("its output `", loss, "` is minimised."));
}

// Returns the comment that stands once, above the first field of that name; empty: none. `job` is
// the whole job.
std::string CommentAbove(const FieldDescriptor* field, const proto::Job& job) {
  static const std::map<std::string, const char*> kComments = {
      {"weir.proto.Job.graph",
       "The model: sizes by name, then functions. Nothing here knows about devices."},
      {"weir.proto.Graph.dim", "Logical sizes. A dimension is never cut inside a `unit`."},
      {"weir.proto.Job.mesh", "The devices, by named axes; `--mesh dp=2,tp=2` replaces this."},
      {"weir.proto.Job.rule",
       "Which dimension is split over which axis. Rules about axes the mesh lacks do nothing."},
      {"weir.proto.Job.data", "Where batches come from."},
      {"weir.proto.Job.training", "How to train."},
  };
  const std::string name(field->full_name());
  if (name == "weir.proto.Graph.main") return CommentAboveMain(job.graph());
  auto it = kComments.find(name);
  return it == kComments.end() ? "" : it->second;
}

class JobPrinter {
 public:
  // `job` must outlive the printer.
  explicit JobPrinter(const proto::Job& job) : job_(job) {}

  std::string Print() {
    PrintFields(job_, 0);
    return std::move(text_);
  }

 private:
  // Returns the fields that are set, in the order of the schema.
  static std::vector<const FieldDescriptor*> SetFields(const Message& message) {
    std::vector<const FieldDescriptor*> set, fields;
    message.GetReflection()->ListFields(message, &set);
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      for (const FieldDescriptor* field : set) {
        if (field == message.GetDescriptor()->field(i)) fields.push_back(field);
      }
    }
    return fields;
  }

  static std::string ScalarText(const Message& message, const FieldDescriptor* field, int index) {
    TextFormat::Printer printer;
    std::string value;
    printer.PrintFieldValueToString(message, field, index, &value);
    return value;
  }

  static const Message& Child(const Message& message, const FieldDescriptor* field, int index) {
    const Reflection* reflection = message.GetReflection();
    return index < 0 ? reflection->GetMessage(message, field)
                     : reflection->GetRepeatedMessage(message, field, index);
  }

  // Prints the whole message between braces on one line.
  static std::string Inline(const Message& message) {
    std::string line = "{";
    for (const FieldDescriptor* field : SetFields(message)) {
      int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
      if (field->is_repeated() && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        absl::StrAppend(&line, " ", std::string(field->name()), ": ", ListText(message, field));
        continue;
      }
      for (int i = 0; i < count; ++i) {
        int index = field->is_repeated() ? i : -1;
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
          absl::StrAppend(&line, " ", std::string(field->name()), " ",
                          Inline(Child(message, field, index)));
        } else {
          absl::StrAppend(&line, " ", std::string(field->name()), ": ",
                          ScalarText(message, field, index));
        }
      }
    }
    return line + (line.size() > 1 ? " }" : "}");
  }

  // Prints a single value bare, and several values as [a, b].
  static std::string ListText(const Message& message, const FieldDescriptor* field) {
    int count = message.GetReflection()->FieldSize(message, field);
    if (count == 1) return ScalarText(message, field, 0);
    std::string list = "[";
    for (int i = 0; i < count; ++i)
      absl::StrAppend(&list, i > 0 ? ", " : "", ScalarText(message, field, i));
    return list + "]";
  }

  void Line(int depth, const std::string& line) {
    absl::StrAppend(&text_, std::string(static_cast<size_t>(2 * depth), ' '), line, "\n");
  }

  // Returns whether a field is spread over lines. Sections and functions always are; everything
  // else is if it is too long.
  static bool Spread(const FieldDescriptor* field, const std::string& line, int depth) {
    static const std::set<std::string> kAlways = {
        "weir.proto.Job.graph", "weir.proto.Graph.function", "weir.proto.Job.training"};
    return kAlways.count(std::string(field->full_name())) > 0 ||
           line.size() + static_cast<size_t>(2 * depth) > kLineMax;
  }

  void PrintMessage(const std::string& name, const Message& message, const FieldDescriptor* field,
                    int depth) {
    std::string line = absl::StrCat(name, " ", Inline(message));
    bool is_function = field->message_type()->full_name() == "weir.proto.Function";
    if (is_function) text_ += "\n";
    if (!Spread(field, line, depth)) return Line(depth, line);
    Line(depth, name + " {");
    PrintFields(message, depth + 1);
    Line(depth, "}");
  }

  void PrintFields(const Message& message, int depth) {
    for (const FieldDescriptor* field : SetFields(message)) {
      if (const std::string comment = CommentAbove(field, job_); !comment.empty()) {
        if (depth == 0 || field->name() == "main") text_ += "\n";
        Line(depth, absl::StrCat("# ", comment));
      }
      std::string name(field->name());
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        Line(depth, absl::StrCat(name, ": ",
                                 field->is_repeated() ? ListText(message, field)
                                                      : ScalarText(message, field, -1)));
        continue;
      }
      int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
      for (int i = 0; i < count; ++i) {
        PrintMessage(name, Child(message, field, field->is_repeated() ? i : -1), field, depth);
      }
    }
  }

  const proto::Job& job_;
  std::string text_;
};

}  // namespace

std::string JobText(const proto::Job& job, const std::string& title) {
  std::string text = "# proto-file: proto/job.proto\n# proto-message: weir.proto.Job\n#\n";
  for (const auto& line : absl::StrSplit(title, '\n')) {
    absl::StrAppend(&text, line.empty() ? "#" : "# ", std::string(line.data(), line.size()), "\n");
  }
  text += "\n";
  return text + JobPrinter(job).Print();
}

}  // namespace weir::job
