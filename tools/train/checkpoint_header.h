// What a checkpoint says of the run that wrote it, as metadata of the file: how many steps are
// done, how many of them the optimiser made, and the schedule of learning rates that the run
// followed. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/store/safetensors.h"

namespace weir {

struct CheckpointHeader {
  int64_t step = 0;  // steps done
  int64_t optimizer_step =
      0;  // of them, those that the optimiser made; may be negative while gradients are delayed
  std::string
      schedule;  // ScheduleText of the run; "": a checkpoint from before schedules were written
};

// The metadata of a checkpoint of `job` after `step` steps.
std::map<std::string, std::string> CheckpointMetadata(const Job& job, int64_t step);

// kInvalidArgument (W0076) if `file` is no checkpoint.
absl::StatusOr<CheckpointHeader> ReadCheckpointHeader(const SafetensorsReader& file);

// Whether `job` can go on from the checkpoint at `path`. kInvalidArgument: W0548 if the run counted
// updates otherwise, W0923 if the checkpoint has more steps than the job. Precondition:
// compiler::CheckTraining is ok.
absl::Status CheckResume(const Job& job, const std::string& path, const CheckpointHeader& header);

// A sentence if `job` follows another schedule than the run of the checkpoint did, else "".
std::string ScheduleChange(const Job& job, const CheckpointHeader& header);

// "0.001 after 10 updates of warm-up, COSINE to 0 at update 60"
std::string ScheduleText(const Job& job);

}  // namespace weir
