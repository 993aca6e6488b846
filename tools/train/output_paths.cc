#include "tools/train/output_paths.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/data_paths.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

struct Use {
  std::string flag;  // "--save", "data.text.path"
  std::string path;
};

// The file that a path leads to, whether it exists or not; empty if it is no regular file.
std::string FileAt(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return path;
  const bool is_other = fs::exists(file, error) && !fs::is_regular_file(file, error);
  return is_other ? "" : file.string();
}

// A second name of the same file (a hard link) counts as the file.
bool IsOneFile(const std::string& a, const std::string& b) {
  const std::string file = FileAt(a), other = FileAt(b);
  if (file.empty() || other.empty()) return false;
  std::error_code error;
  return file == other || (fs::exists(file, error) && fs::exists(other, error) &&
                           fs::equivalent(file, other, error));
}

bool MayReplace(const Use& output, const Use& input) {
  return (output.flag == "--checkpoint" && input.flag == "--resume") ||
         (output.flag == "--save" && input.flag == "--init");
}

}  // namespace

absl::Status CheckOutputPaths(const Job& job, const TrainOptions& options) {
  const std::vector<Use> outputs = {{"--checkpoint", options.checkpoint},
                                    {"--save", options.save},
                                    {"--metrics", options.metrics},
                                    {"--trace", options.trace}};
  std::vector<Use> inputs = {
      {"--resume", options.resume}, {"--init", options.init}, {"the job", options.job_file}};
  for (const DataPath& data : DataPathsOf(job)) inputs.push_back({data.field, data.path});
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].path.empty()) continue;
    const std::string where = absl::StrCat(outputs[i].flag, " ", outputs[i].path);
    for (size_t k = 0; k < i; ++k) {
      if (outputs[k].path.empty() || !IsOneFile(outputs[i].path, outputs[k].path)) continue;
      return Rejected({"W0926", where, "a file of its own",
                       absl::StrCat("that of ", outputs[k].flag), "another name"});
    }
    for (const Use& input : inputs) {
      if (input.path.empty() || MayReplace(outputs[i], input) ||
          !IsOneFile(outputs[i].path, input.path))
        continue;
      return Rejected({"W0926", where, "a file that the run does not read",
                       absl::StrCat("that of ", input.flag, ", which would be lost"),
                       "another name"});
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
