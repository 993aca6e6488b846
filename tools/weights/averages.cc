#include "tools/weights/averages.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"

namespace weir::weights {

std::string AverageOf(const std::string& weight) { return absl::StrCat(weight, kAverageEnding); }

absl::Status CheckAverages(const store::SafetensorsReader& file) {
  // A weight that was trained has other states beside it; a frozen one has none.
  for (const auto& [name, tensor] : file.tensors()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    const std::string weight = name.substr(0, slash);
    if (file.tensors().count(weight) == 0 || file.tensors().count(AverageOf(weight)) > 0) continue;
    return Rejected({"W0084", file.path(),
                     absl::StrCat("an average of each trained weight, also ", AverageOf(weight)),
                     absl::StrCat(name, " without it"),
                     "a file with all averages, or no --average"});
  }
  if (!store::StepsBehind(file.metadata()).has_value()) return absl::OkStatus();
  // The first update sets the averages; before, they are zeros.
  const store::CheckpointFacts facts = store::FactsOf(file.metadata());
  if (facts.optimizer_step > 0) return absl::OkStatus();
  return Rejected({"W0084", file.path(), "averages of at least one update",
                   absl::StrCat("step ", facts.step, ", before the first update"),
                   "a later checkpoint, or no --average"});
}

absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenValues(const std::string& path,
                                                                           Values values) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsReader> file,
                        store::SafetensorsReader::Open(path));
  if (values == Values::kAverages) {
    std::vector<std::string> averaged;
    for (const auto& [name, tensor] : file->tensors()) {
      if (file->tensors().count(AverageOf(name)) > 0) averaged.push_back(name);
    }
    if (averaged.empty()) {
      return Rejected({"W0084", path, "averages of weights", "none",
                       "a checkpoint of a run with training { average {} }, or no --average"});
    }
    WEIR_RETURN_IF_ERROR(CheckAverages(*file));
    for (const std::string& name : averaged) file->ReadInPlaceOf(name, AverageOf(name));
  }
  return std::shared_ptr<const store::SafetensorsReader>(std::move(file));
}

}  // namespace weir::weights
