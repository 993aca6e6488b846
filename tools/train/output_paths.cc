#include "tools/train/output_paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/weight_index.h"
#include "tools/job/data_paths.h"
#include "tools/train/event_file.h"
#include "tools/train/run_folder.h"
#include "tools/weights/find_weights.h"

namespace weir::train {
namespace {

namespace fs = std::filesystem;

struct Use {
  std::string flag;  // "--save", "data.text.path"
  std::string path;
  // The file that the path leads to, whether it exists or not. Empty: no regular file.
  std::string file = {};
};

std::string FileAt(const std::string& path) {
  if (path.empty()) return "";
  const fs::path file = job::ResolvedPath(path);
  if (file.empty()) return path;
  std::error_code error;
  const bool is_other = fs::exists(file, error) && !fs::is_regular_file(file, error);
  return is_other ? "" : file.string();
}

// A second name of the same file (a hard link) counts as the file.
bool IsOneFile(const Use& a, const Use& b) {
  if (a.file.empty() || b.file.empty()) return false;
  std::error_code error;
  return a.file == b.file || (fs::exists(a.file, error) && fs::exists(b.file, error) &&
                              fs::equivalent(a.file, b.file, error));
}

bool MayReplace(const Use& output, const Use& input) {
  return (output.flag == "--checkpoint" && input.flag == "--resume") ||
         (output.flag == "--save" && input.flag == "--init");
}

// Adds the files, besides the one at the path, that a reader of the weights or the checkpoint at
// the path of `flag` opens.
void AddFilesOf(const std::string& flag, const std::string& path, std::vector<Use>* inputs) {
  for (std::string& file : store::IsCheckpointFolder(path) ? store::FilesOfCheckpoint(path)
                                                           : store::FilesOfWeights(path)) {
    if (file != path) inputs->push_back({"a file of " + flag, std::move(file)});
  }
}

constexpr char kTextEnding[] = ".textproto";

// Returns 0 if the file of an output that appears on the way, or at the end, can be written.
int TryFile(const std::string& flag, const std::string& path) {
  struct stat info;
  // Metrics are written in place, and an existing file, such as a pipe, needs no room beside it.
  const bool in_place =
      flag == "--metrics" && ::access(path.c_str(), W_OK) == 0 && ::stat(path.c_str(), &info) == 0;
  if (in_place) return S_ISDIR(info.st_mode) ? EISDIR : 0;
  return store::PendingFile::Try(path);
}

}  // namespace

absl::Status CheckOutsideOfCheckpoints(const std::string& flag, const std::string& output) {
  if (output.empty()) return absl::OkStatus();
  const std::string around = store::CheckpointAround(output);
  const bool is_latest = around.empty() && store::IsLatestFile(job::ResolvedPath(output).string());
  if (around.empty() && !is_latest) return absl::OkStatus();
  const std::string folder =
      fs::path(is_latest ? job::ResolvedPath(output).string() : around).parent_path().string();
  return Rejected({"W0926", absl::StrCat(flag, " ", output), "a path outside of any checkpoint",
                   is_latest ? absl::StrCat("the file that names the newest checkpoint of ", folder)
                             : absl::StrCat("one in ", around, ", which is a checkpoint"),
                   absl::StrCat("the folder around it, ", folder, "/, or another folder")});
}

absl::Status TryOutputs(const TrainOptions& options) {
  if (options.folder != nullptr && options.folder->has_begun()) return absl::OkStatus();
  for (const auto& [flag, path] : {std::pair<std::string, std::string>{"--save", options.save},
                                   {"--metrics", options.metrics},
                                   {"--trace", options.trace},
                                   {"--tensorboard", options.tensorboard}})
    WEIR_RETURN_IF_ERROR(CheckOutsideOfCheckpoints(flag, path));
  WEIR_RETURN_IF_ERROR(CheckPlaceOfCheckpoints(options.checkpoint));
  const bool is_folder = IsFolderPath(options.checkpoint);
  for (const std::string& path : {is_folder ? std::string() : options.checkpoint, options.save}) {
    if (path.empty()) continue;
    if (const int error = store::PendingFile::Try(path))
      return store::CannotWrite(path, "cannot make a temporary file beside it", error);
  }
  for (const auto& [flag, path] : {std::pair<std::string, std::string>{"--trace", options.trace},
                                   {"--metrics", options.metrics}}) {
    const int error = path.empty() ? 0 : TryFile(flag, path);
    if (error == 0) continue;
    return Missing({"W0075", absl::StrCat(flag, " ", path), "a file that can be written",
                    std::strerror(error), "check that the folder exists and has room"});
  }
  if (!options.tensorboard.empty()) return EventFile::CheckFolder(options.tensorboard);
  return absl::OkStatus();
}

absl::Status CheckNameOfWeights(const std::string& flag, const std::string& output) {
  if (!absl::EndsWith(output, kTextEnding)) return absl::OkStatus();
  return Rejected({"W0840", absl::StrCat(flag, " ", output), "the name of a file of weights",
                   "that of a job or of a map, which ends in .textproto", "model.safetensors"});
}

absl::Status CheckOutputPaths(const proto::Job& job, const TrainOptions& options) {
  std::vector<Use> outputs = {{"--checkpoint", options.checkpoint},
                              {"--save", options.save},
                              {"--metrics", options.metrics},
                              {"--trace", options.trace}};
  std::vector<Use> inputs = {
      {"--resume", options.resume}, {"--init", options.init}, {"the job", options.job_file}};
  AddFilesOf("--init", options.init, &inputs);
  AddFilesOf("--resume", options.resume, &inputs);
  for (const job::DataPath& data : job::DataPathsOf(job)) inputs.push_back({data.field, data.path});
  for (const std::string& file : job::DataFilesOf(job)) inputs.push_back({"a file of data", file});
  for (const std::string& path : weights::FilesBeside(options.job_file)) {
    // Weights beside a job may be its constants and the weights with which it begins.
    if (absl::EndsWith(path, kTextEnding)) inputs.push_back({"the map beside the job", path});
  }
  for (Use& output : outputs) output.file = FileAt(output.path);
  for (Use& input : inputs) input.file = FileAt(input.path);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string where = absl::StrCat(outputs[i].flag, " ", outputs[i].path);
    for (size_t k = 0; k < i; ++k) {
      if (!IsOneFile(outputs[i], outputs[k])) continue;
      return Rejected({"W0926", where, "a file of its own",
                       absl::StrCat("that of ", outputs[k].flag), "another name"});
    }
    for (const Use& input : inputs) {
      if (MayReplace(outputs[i], input) || !IsOneFile(outputs[i], input)) continue;
      return Rejected({"W0926", where, "a file that the run does not read",
                       absl::StrCat("that of ", input.flag, ", which would be lost"),
                       "another name"});
    }
  }
  for (const Use& output : {outputs[0], outputs[1]})
    WEIR_RETURN_IF_ERROR(CheckNameOfWeights(output.flag, output.path));
  return absl::OkStatus();
}

absl::Status CheckOutputIsNoInput(const std::string& flag, const std::string& output,
                                  const std::vector<std::string>& inputs) {
  WEIR_RETURN_IF_ERROR(CheckOutsideOfCheckpoints(flag, output));
  const Use written{flag, output, FileAt(output)};
  for (const std::string& path : inputs) {
    if (!IsOneFile(written, {"", path, FileAt(path)})) continue;
    return Rejected({"W0926", absl::StrCat(flag, " ", output),
                     "a file that the command does not read",
                     absl::StrCat(path, ", which would be lost"), "another name"});
  }
  return absl::OkStatus();
}

}  // namespace weir::train
