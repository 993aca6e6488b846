#include "tools/checkpoint/find_whole.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/safetensors.h"
#include "tools/checkpoint/identity.h"
#include "tools/checkpoint/transition.h"

namespace weir::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const std::string& directory, int64_t step) {
  return (fs::path(directory) / store::StepFolderName(step)).string();
}

// The folder of a run, and the step of a checkpoint in it.
struct Named {
  std::string directory;
  int64_t step = 0;
};
std::optional<Named> Split(const std::string& folder) {
  const std::optional<int64_t> step =
      store::StepOfName(fs::path(store::WithoutSlashes(folder)).filename().string());
  if (!step.has_value()) return std::nullopt;
  return Named{store::FolderAround(folder), *step};
}

// Returns the steps whose folders have no index, ascending.
std::vector<int64_t> StepsWithoutIndex(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const store::Leftover& leftover : store::LeftoversIn(directory)) {
    const std::optional<int64_t> step = store::StepOfName(leftover.name);
    if (leftover.kind == store::Leftover::Kind::kWithoutIndex && step.has_value() &&
        fs::is_directory(FolderOf(directory, *step), error))
      steps.push_back(*step);
  }
  return steps;
}

// Returns the steps to try, descending: those of StepsToResume, and beside them those without an
// index, which are tried so that a warning names them.
std::vector<int64_t> StepsToTry(const std::string& directory, const std::vector<int64_t>& committed,
                                std::optional<int64_t> latest) {
  std::vector<int64_t> steps = store::StepsToResume(committed, latest);
  const bool all_count = !latest.has_value() || steps.front() > *latest;
  for (const int64_t step : StepsWithoutIndex(directory)) {
    if (all_count || step <= *latest) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<int64_t>());
  return steps;
}

// Returns the first of `steps`, descending, that is whole, and adds to the warnings.
absl::StatusOr<WholeCheckpoint> NewestOf(const std::string& directory,
                                         const std::vector<int64_t>& steps,
                                         std::vector<std::string> warnings) {
  const int64_t newest = steps.front();
  for (const int64_t step : steps) {
    const std::string folder = FolderOf(directory, step);
    const absl::Status whole = CheckWhole(folder);
    if (absl::IsInvalidArgument(whole)) return whole;
    if (!whole.ok()) {
      warnings.push_back(PassedOverText(folder, whole));
      continue;
    }
    if (step != newest) warnings.push_back(GoesOnFromText(folder, newest - step));
    return WholeCheckpoint{folder, std::move(warnings)};
  }
  return Damaged({"W0725", directory, "a checkpoint that is whole",
                  absl::StrCat(Plural(static_cast<int64_t>(steps.size()), "checkpoint"),
                               ", none of them whole; the newest: ",
                               WithoutAdvice(CheckWhole(FolderOf(directory, newest)))),
                  absl::StrCat("a copy of the folder, or `weir checkpoint verify ", directory,
                               " --all-steps`, which says what is wrong with each")});
}

}  // namespace

std::string WithoutAdvice(const absl::Status& status) {
  std::optional<Problem> problem = ProblemOf(status);
  if (!problem.has_value()) return std::string(status.message());
  problem->hint.clear();
  std::string text = Format(*problem);
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

absl::Status CheckWhole(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsReader> reader,
                        store::SafetensorsReader::Open(path));
  if (reader->shards() != nullptr) WEIR_RETURN_IF_ERROR(reader->shards()->CheckSizes());
  TransitionOptions options;
  options.purpose = TransitionOptions::Purpose::kKeep;
  options.depth = TransitionOptions::Depth::kContentsIfHere;
  return CheckTransition(*reader, options).status();
}

std::string PassedOverText(const std::string& path, const absl::Status& why) {
  return absl::StrCat(path, IsOfAnother(why) ? "" : " is damaged and",
                      " is passed over: ", WithoutAdvice(why));
}

std::string GoesOnFromText(const std::string& folder, int64_t steps_again) {
  return absl::StrCat("the run goes on from ", folder, ", which is whole, and does ",
                      Plural(steps_again, "step"), " again");
}

absl::StatusOr<WholeCheckpoint> FindWhole(const std::string& directory) {
  const std::vector<int64_t> committed = store::CommittedSteps(directory);
  if (committed.empty()) return store::ResolveCheckpoint(directory).status();
  const absl::StatusOr<std::optional<int64_t>> latest = store::ReadLatest(directory);
  const std::vector<int64_t> steps =
      StepsToTry(directory, committed, latest.ok() ? *latest : std::nullopt);
  // The error advises to name a checkpoint, which may be one that is damaged.
  if (!latest.ok()) {
    return NewestOf(directory, steps,
                    {absl::StrCat(WithoutAdvice(latest.status()),
                                  "; the newest checkpoint that is whole counts")});
  }
  if (!latest->has_value()) {
    return NewestOf(directory, steps,
                    {absl::StrCat(directory, " has no `latest`; its newest checkpoint counts")});
  }
  std::vector<std::string> warnings;
  if (steps.front() != **latest) {
    warnings.push_back(absl::StrCat("`latest` in ", directory, " names ",
                                    store::StepFolderName(**latest), ", which is not there"));
  }
  return NewestOf(directory, steps, std::move(warnings));
}

bool HasNoSteps(const std::string& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(store::WithoutSlashes(directory), error);
  if (status.type() == fs::file_type::not_found) return true;
  fs::directory_iterator name(directory, error);
  for (; !error && name != fs::directory_iterator(); name.increment(error)) {
    if (store::IsOfCheckpoints(name->path().filename().string())) return false;
  }
  return !error;
}

absl::Status CheckNamed(const std::string& folder) {
  const absl::Status whole = CheckWhole(folder);
  const std::optional<Named> named = Split(folder);
  std::optional<Problem> problem = ProblemOf(whole);
  if (whole.ok() || absl::IsInvalidArgument(whole) || !named.has_value() || !problem.has_value())
    return whole;
  std::vector<int64_t> steps = store::CommittedSteps(named->directory);
  while (!steps.empty()) {
    const int64_t step = steps.back();
    steps.pop_back();
    if (step >= named->step || !CheckWhole(FolderOf(named->directory, step)).ok()) continue;
    problem->hint =
        absl::StrCat(FolderOf(named->directory, step), ", the newest before it that is whole, or ",
                     named->directory, "/, which takes that one by itself");
    return ErrorOf(whole.code(), *problem);
  }
  return whole;
}

}  // namespace weir::checkpoint
