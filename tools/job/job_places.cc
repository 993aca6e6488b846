#include "tools/job/job_places.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "proto/job.pb.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/job/data_paths.h"
#include "tools/job/job_file.h"

namespace weir::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

class NoErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// Follows the name of an element from the job inwards. The line is the line of the last element
// found.
class ElementWalk {
 public:
  ElementWalk(const proto::Job& job, const TextFormat::ParseInfoTree& tree)
      : message_(&job), tree_(&tree) {}

  // Precondition: `parts` is the name, divided at commas.
  void Follow(const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      if (!Step(part)) return;
    }
  }
  std::optional<int> line() const { return line_; }

 private:
  // Returns whether the walk continues. An unknown part ends the walk.
  bool Step(const std::string& part) {
    if (message_ == nullptr) return false;
    absl::string_view rest = part;
    if (const proto::Job* job = JobHere(); job != nullptr && IsElementOfMain(part))
      EnterFunction(job->graph().main());
    if (absl::ConsumePrefix(&rest, "function ")) return EnterFunction(std::string(rest));
    if (absl::ConsumePrefix(&rest, "dim "))
      return (JobHere() == nullptr || EnterField("graph")) && EnterNamed("dim", std::string(rest));
    if (absl::ConsumePrefix(&rest, "mesh axis "))
      return EnterField("mesh") && EnterNamed("axis", std::string(rest));
    if (absl::StartsWith(rest, "mesh ")) return EnterField("mesh");
    if (absl::ConsumePrefix(&rest, "rule ")) return EnterRule(std::string(rest));
    if (absl::ConsumePrefix(&rest, "layout of ")) return EnterLayout(std::string(rest));
    if (absl::ConsumePrefix(&rest, "runtime.recompute of "))
      return EnterRecompute(std::string(rest));
    if (IsInFunction()) return EnterPartOfFunction(part);
    if (absl::ConsumePrefix(&rest, "attribute ")) return EnterNamed("attr", std::string(rest));
    return EnterPath(part);
  }

  // Returns whether a part is an element of main. Such an element need not name main.
  static bool IsElementOfMain(absl::string_view part) {
    return absl::StartsWith(part, "call ") || absl::StartsWith(part, "input ") ||
           absl::StartsWith(part, "output ");
  }
  // Returns the job, if the walk is still at its start.
  const proto::Job* JobHere() const {
    return message_ != nullptr && message_->GetDescriptor() == proto::Job::descriptor()
               ? static_cast<const proto::Job*>(message_)
               : nullptr;
  }
  bool IsInFunction() const {
    return message_ != nullptr && message_->GetDescriptor() == proto::Function::descriptor();
  }

  bool EnterFunction(const std::string& name) {
    if (JobHere() != nullptr && !EnterField("graph")) return false;
    return EnterNamed("function", name);
  }

  bool EnterPartOfFunction(const std::string& part) {
    const std::pair<const char*, const char*> kKinds[] = {
        {"node ", "node"}, {"call ", "node"}, {"parameter ", "parameter"}, {"input ", "input"}};
    for (const auto& [prefix, field] : kKinds) {
      if (!absl::StartsWith(part, prefix)) continue;
      const std::string name = part.substr(absl::string_view(prefix).size());
      return EnterNamed(field, name) ||
             (std::string(field) == "node" &&
              (EnterNumbered(name) || EnterNamed(field, name.substr(0, name.rfind('.')))));
    }
    if (absl::StartsWith(part, "output ")) return EnterOutput(part.substr(7));
    return false;
  }

  // Enters a node without a name, which is called by its number and op: "3 (matmul)".
  bool EnterNumbered(const std::string& name) {
    int index = 0;
    return absl::SimpleAtoi(name.substr(0, name.find(' ')), &index) && EnterElement("node", index);
  }

  bool EnterOutput(const std::string& name) {
    const auto& function = static_cast<const proto::Function&>(*message_);
    for (int i = 0; i < function.output_size(); ++i) {
      if (function.output(i) == name) return EnterElement("output", i);
    }
    return false;
  }

  bool EnterRule(const std::string& text) {
    const proto::Job* job = JobHere();
    for (int i = 0; job != nullptr && i < job->rule_size(); ++i) {
      if (absl::StrCat(job->rule(i).dim(), " -> ", job->rule(i).axis()) == text)
        return EnterElement("rule", i);
    }
    return false;
  }

  bool EnterLayout(const std::string& text) {
    const proto::Job* job = JobHere();
    for (int i = 0; job != nullptr && i < job->layout_size(); ++i) {
      if (absl::StrCat("\"", job->layout(i).tensor(), "\"") == text)
        return EnterElement("layout", i);
    }
    return false;
  }

  bool EnterRecompute(const std::string& function) {
    const proto::Job* job = JobHere();
    for (int i = 0; job != nullptr && i < job->runtime().recompute_size(); ++i) {
      if (job->runtime().recompute(i).function() == function)
        return EnterField("runtime") && EnterElement("recompute", i);
    }
    return EnterField("runtime");
  }

  // Enters "training.schedule.decay" or "pipeline.cut[1]", as far as the text has it.
  bool EnterPath(const std::string& path) {
    for (const absl::string_view step : absl::StrSplit(path, '.')) {
      const size_t bracket = step.find('[');
      const std::string name(step.substr(0, bracket));
      int index = -1;
      if (bracket != absl::string_view::npos &&
          !absl::SimpleAtoi(step.substr(bracket + 1, step.find(']') - bracket - 1), &index))
        return false;
      if (message_ == nullptr || !EnterElement(name, index)) return false;
    }
    return true;
  }

  // Enters an element whose field `name` is `name`.
  bool EnterNamed(const std::string& field_name, const std::string& name) {
    if (message_ == nullptr) return false;
    const FieldDescriptor* field = message_->GetDescriptor()->FindFieldByName(field_name);
    if (field == nullptr || !field->is_repeated() || field->message_type() == nullptr) return false;
    const FieldDescriptor* name_field = field->message_type()->FindFieldByName("name");
    for (int i = 0;
         name_field != nullptr && i < message_->GetReflection()->FieldSize(*message_, field); ++i) {
      const Message& element = message_->GetReflection()->GetRepeatedMessage(*message_, field, i);
      if (element.GetReflection()->GetString(element, name_field) == name)
        return EnterElement(field_name, i);
    }
    return false;
  }

  bool EnterField(const std::string& name) { return EnterElement(name, -1); }

  // Enters an element. `index` is -1 for a field that is no list, or for the first element of a
  // list.
  bool EnterElement(const std::string& name, int index) {
    const FieldDescriptor* field = message_->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) return false;
    const auto* reflection = message_->GetReflection();
    const int count = field->is_repeated() ? reflection->FieldSize(*message_, field) : 0;
    const int at = field->is_repeated() ? std::max(index, 0) : -1;
    if (at >= count) return false;
    const TextFormat::ParseLocation location = tree_->GetLocation(field, at);
    if (location.line < 0) return false;
    line_ = location.line + 1;
    if (field->message_type() == nullptr) {
      message_ = nullptr;
      return true;
    }
    message_ = field->is_repeated() ? &reflection->GetRepeatedMessage(*message_, field, at)
                                    : &reflection->GetMessage(*message_, field);
    const TextFormat::ParseInfoTree* nested = tree_->GetTreeForNested(field, at);
    if (nested == nullptr) message_ = nullptr;
    tree_ = nested;
    return true;
  }

  const Message* message_;  // null: the walk has come to a plain value
  const TextFormat::ParseInfoTree* tree_;
  std::optional<int> line_;
};

// Returns whether one path equals the other or leads to it: "training" and "training.steps".
bool LeadsTo(absl::string_view outer, absl::string_view inner) {
  if (!absl::ConsumePrefix(&inner, outer)) return false;
  return inner.empty() || inner[0] == '.' || inner[0] == '[';
}

// Returns the last flag that gave the element or a part of it, or "".
std::string FlagOf(const JobSource& source, const std::vector<std::string>& parts) {
  absl::string_view name = parts.back();
  if (absl::StartsWith(name, "mesh ") && source.has_mesh)
    return absl::StrCat("--mesh ", source.mesh.empty() ? "''" : source.mesh);
  const std::string path =
      absl::ConsumePrefix(&name, "dim ") ? absl::StrCat("graph.dim[", name, "]") : parts.back();
  for (auto it = source.set.rbegin(); it != source.set.rend(); ++it) {
    const std::string assigned = it->substr(0, it->find('='));
    if (LeadsTo(path, assigned) || LeadsTo(assigned, path)) return SetFlag(*it);
  }
  return "";
}

// Returns the element whose value in the data of the job is the path `element`, or `element`
// itself.
std::string FieldOfPath(const proto::Job& job, const std::string& element) {
  for (const DataPath& data : DataPathsOf(job)) {
    if (data.path == element) return data.field;
  }
  return element;
}

// Returns whether the element is a path of fields of a job, as "data.text" is. A file name is none,
// even if it begins like one ("data.safetensors").
bool IsPathInJob(const std::string& element) {
  const google::protobuf::Descriptor* type = proto::Job::descriptor();
  for (const absl::string_view step : absl::StrSplit(element, '.')) {
    const FieldDescriptor* field =
        type == nullptr ? nullptr : type->FindFieldByName(std::string(step));
    if (field == nullptr) return false;
    type = field->message_type();
  }
  return true;
}

}  // namespace

std::string PlaceOf(const JobSource& source, const std::string& name) {
  proto::Job job;
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  NoErrors errors;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  const bool is_parsed = !source.text.empty() && source.text.size() <= kPlacedJobBytesMax &&
                         parser.ParseFromString(source.text, &job);
  const std::string element = is_parsed ? FieldOfPath(job, name) : name;
  const std::vector<std::string> parts = absl::StrSplit(element, ", ");
  if (std::string flag = FlagOf(source, parts); !flag.empty()) return flag;
  if (!is_parsed) return "";
  ElementWalk walk(job, tree);
  walk.Follow(parts);
  if (walk.line().has_value()) return absl::StrCat(source.name, ":", *walk.line());
  return IsPathInJob(element) ? source.name : "";
}

absl::Status WithPlace(const JobSource& source, const absl::Status& status) {
  if (status.ok()) return status;
  const std::optional<Problem> problem = ProblemOf(status);
  if (!problem.has_value() || problem->where.empty()) return status;
  const std::string& element = problem->where;
  if (absl::StartsWith(element, source.name + ":") || absl::StartsWith(element, "--"))
    return status;
  const std::string place = PlaceOf(source, element);
  return place.empty() ? status : At(place, status);
}

}  // namespace weir::job
