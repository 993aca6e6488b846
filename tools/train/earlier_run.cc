#include "tools/train/earlier_run.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/safetensors.h"

namespace weir::train {

namespace fs = std::filesystem;

std::optional<int64_t> FindEarlierRun(const std::string& path, int64_t steps_done) {
  std::error_code error;
  if (path.empty() || !fs::is_regular_file(path, error)) return std::nullopt;
  const absl::StatusOr<std::unique_ptr<store::SafetensorsReader>> file =
      store::SafetensorsReader::Open(path);
  if (!file.ok()) return std::nullopt;
  const std::optional<int64_t> steps = store::StepsBehind((*file)->metadata());
  return steps.has_value() && *steps > steps_done ? steps : std::nullopt;
}

absl::StatusOr<std::optional<std::string>> KeepEarlierRun(const std::string& path,
                                                          int64_t steps_done) {
  const std::optional<int64_t> step = FindEarlierRun(path, steps_done);
  if (!step.has_value()) return std::nullopt;
  std::error_code error;
  const fs::path earlier = fs::canonical(path, error);
  const std::string kept = earlier.string() + ".before";
  if (!error && FindEarlierRun(kept, *step).has_value()) return std::nullopt;
  if (!error) fs::remove(kept, error);
  if (!error) fs::create_hard_link(earlier, kept, error);
  if (error) {  // some file systems have no links
    error.clear();
    fs::copy_file(earlier, kept, fs::copy_options::overwrite_existing, error);
  }
  if (error) return store::CannotWrite(kept, "keep the earlier file", error.value());
  return kept;
}

}  // namespace weir::train
