// weir dims: says which dimensions of a model are the same, and names those that have no name.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/dims/name_dims.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/cli/cli_verbs.h"
#include "tools/job/job_text.h"

namespace weir::cli {
namespace {

constexpr size_t kColumns = 100;

struct DimsArguments {
  JobArguments job;
  bool name = false;
  bool json = false;
};

// Returns "wq[1], wo[0], w_up[1] and 4 more", at most `room` long if that has room for one.
std::string SomeOf(const std::vector<std::string>& all, size_t room) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t rest = all.size() - i;
    const std::string more = absl::StrCat(" and ", rest, " more");
    const size_t length = text.size() + 2 + all[i].size() + (rest > 1 ? more.size() : 0);
    if (i > 0 && length > room) return text + more;
    absl::StrAppend(&text, i == 0 ? "" : ", ", all[i]);
  }
  return text;
}

// Returns the dimensions with those of one name joined, since a rule speaks of all of them.
std::vector<compiler::DimName> JoinedByName(const std::vector<compiler::DimName>& dims) {
  std::vector<compiler::DimName> joined;
  for (const compiler::DimName& dim : dims) {
    const auto known =
        std::find_if(joined.begin(), joined.end(),
                     [&](const compiler::DimName& other) { return other.name == dim.name; });
    if (known == joined.end()) {
      joined.push_back(dim);
      continue;
    }
    absl::StrAppend(&known->why, "; ", dim.why);
    known->parameters.insert(known->parameters.end(), dim.parameters.begin(), dim.parameters.end());
    known->twice.insert(known->twice.end(), dim.twice.begin(), dim.twice.end());
  }
  return joined;
}

void PrintDims(const std::vector<compiler::DimName>& dims, std::ostream& out) {
  size_t longest = 4;
  for (const compiler::DimName& dim : dims) longest = std::max(longest, dim.name.size());
  const int width = static_cast<int>(longest);
  out << Plural(static_cast<int64_t>(dims.size()), "dimension") << "\n";
  for (const compiler::DimName& dim : dims) {
    out << absl::StrFormat("  %-*s %8d  %s\n", width, dim.name, dim.size, dim.why);
    const std::string indent(static_cast<size_t>(width) + 13, ' ');
    if (!dim.parameters.empty())
      out << indent << "in " << SomeOf(dim.parameters, kColumns - indent.size() - 3) << "\n";
    if (!dim.twice.empty())
      out << indent << "twice in " << SomeOf(dim.twice, kColumns - indent.size() - 45)
          << ": a rule splits one of the two\n";
  }
}

nlohmann::ordered_json DimsJson(const std::vector<compiler::DimName>& dims) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const compiler::DimName& dim : dims) {
    list.push_back({{"name", dim.name},
                    {"size", dim.size},
                    {"why", dim.why},
                    {"parameters", dim.parameters},
                    {"twice", dim.twice}});
  }
  return {{"dims", std::move(list)}};
}

absl::Status ShowDims(const DimsArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, arguments.job.Read());
  context->Confine({}, sandbox::CpuTime::kLimited);
  WEIR_ASSIGN_OR_RETURN(const compiler::GraphDims found, compiler::FindDims(job));
  const std::vector<compiler::DimName> names = compiler::NameDims(found);
  if (arguments.name) {
    compiler::ReplaceProvisional(found, names, &job);
    *context->out << job::JobText(
        job, absl::StrCat(arguments.job.Title(job), ", its dimensions named by `weir dims`."));
  } else if (arguments.json) {
    *context->out << DimsJson(names).dump(2) << "\n";
  } else {
    PrintDims(JoinedByName(names), *context->out);
  }
  return absl::OkStatus();
}

}  // namespace

void AddDimsVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<DimsArguments>();
  CLI::App* verb =
      AddVerb(app, context, "dims", "Say which dimensions of a model are the same, and name them",
              "  weir dims job.textproto\n"
              "  weir dims raw.textproto --name > named.textproto",
              [arguments, context] { return ShowDims(*arguments, context); });
  arguments->job.AddTo(verb, context, JobArguments::Data::kNotOpened);
  CLI::Option* name = verb->add_flag(
      "--name", arguments->name,
      "Print the job with a name for each dimension that the job calls _1, _2 and so on");
  verb->add_flag("--json", arguments->json, "Print the dimensions as JSON")->excludes(name);
}

}  // namespace weir::cli
