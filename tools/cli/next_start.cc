#include "tools/cli/next_start.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tools/checkpoint/find_whole.h"

namespace weir::cli {
namespace {

void StartWith(const checkpoint::WholeCheckpoint& from, train::TrainOptions* options,
               OngoingRun* run) {
  for (const std::string& warning : from.warnings) Tell("WARNING: " + warning, run);
  options->resume = from.path;
  options->init = options->resume.empty() ? run->first_init : "";
}

}  // namespace

void ChooseNextStart(train::TrainOptions* options, OngoingRun* run) {
  StartWith(run->folder->GoBackToWhole(), options, run);
}

bool ChooseAnotherStart(const absl::Status& status, train::TrainOptions* options, OngoingRun* run) {
  const std::string chosen = options->resume;
  if (run->has_loaded) return false;
  const std::optional<checkpoint::WholeCheckpoint> from = run->folder->GoBackFurther(chosen);
  if (!from.has_value()) return false;
  StartWith(*from, options, run);
  Tell(absl::StrCat("WARNING: the start did not begin from ", chosen, " (",
                    checkpoint::WithoutAdvice(status), "): the job goes on from ",
                    StartText(*options)),
       run);
  return true;
}

std::string StartText(const train::TrainOptions& options) {
  if (!options.resume.empty()) return options.resume;
  return options.init.empty() ? "its beginning" : "the weights of " + options.init;
}

std::string CheckpointToGoOnFrom(OngoingRun* run) {
  std::string path = run->folder->GoBackToWhole().path;
  std::error_code error;
  const bool is_there = !path.empty() && std::filesystem::exists(path, error);
  return is_there && run->folder->CheckKnown(path).ok() ? path : "";
}

}  // namespace weir::cli
