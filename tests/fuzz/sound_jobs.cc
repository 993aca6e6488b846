#include "tests/fuzz/sound_jobs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/job/job_file.h"

namespace weir::fuzz {
namespace {

const char* const kFolders[] = {"tests/golden/plans/", "tests/golden/passes/build_program/",
                                "tests/golden/passes/propagate_layouts/"};

}  // namespace

std::vector<proto::Job> SoundJobs() {
  std::vector<proto::Job> jobs;
  for (const char* folder : kFolders) {
    std::vector<std::string> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      // x.rank0.textproto is a plan.
      if (!path.ends_with(".textproto") || path.find(".rank") != std::string::npos) continue;
      absl::StatusOr<proto::Job> job = job::ReadJobFile(path);
      if (job.ok()) jobs.push_back(*std::move(job));
    }
  }
  return jobs;
}

}  // namespace weir::fuzz
