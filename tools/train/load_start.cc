#include "tools/train/load_start.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/safetensors.h"
#include "tools/train/run_facts.h"
#include "tools/train/session_states.h"
#include "tools/weights/averages.h"
#include "tools/weights/find_weights.h"

namespace weir::train {
namespace {

absl::Status LoadInit(const TrainOptions& options, JobRunner* runner) {
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        weights::OpenValues(options.init, options.init_values));
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                        weights::MapWeights(std::move(file), {"", options.job_file},
                                            WeightTypesOf(runner->facts().states)));
  return runner->Load({options.init, StateSet::kWeights, mapped.shared_map(), mapped.constants(),
                       options.init_values});
}

}  // namespace

absl::Status LoadStart(const TrainOptions& options, const std::string& resume, JobRunner* runner,
                       const Clock& clock, Progress* progress) {
  if (!options.init.empty()) WEIR_RETURN_IF_ERROR(LoadInit(options, runner));
  if (resume.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsReader> file,
                        store::SafetensorsReader::Open(resume));
  WEIR_RETURN_IF_ERROR(CheckCheckpoint(*file, runner->facts().states));
  const int64_t before = clock.NowNs();
  WEIR_RETURN_IF_ERROR(runner->Load({resume, StateSet::kAll}));
  progress->Say(StatesReadText(runner->facts(), resume, clock.NowNs() - before));
  return absl::OkStatus();
}

}  // namespace weir::train
