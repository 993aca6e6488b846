// The facts that a checkpoint records about the run that wrote it, as metadata of the file: the
// steps done, how many of them the optimiser made, and the run's schedule of learning rates.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/store/safetensors.h"

namespace weir::train {

struct CheckpointHeader {
  int64_t step = 0;  // steps done
  // The steps that the optimiser made. May be negative while gradients are delayed.
  int64_t optimizer_step = 0;
  // The data cursor: the samples that the run has used, in all its parts. Absent: the checkpoint is
  // from before cursors were written.
  std::optional<int64_t> samples;
  std::optional<uint64_t> seed;  // of the run; absent likewise
  // ScheduleText of the run. "": the checkpoint is from before schedules were written.
  std::string schedule;
};

// Returns the metadata of a checkpoint of `job` after `step` steps and `samples` samples.
std::map<std::string, std::string> CheckpointMetadata(const proto::Job& job, int64_t step,
                                                      int64_t samples);

// kInvalidArgument (W0076): `file` is no checkpoint.
absl::StatusOr<CheckpointHeader> ReadCheckpointHeader(const store::SafetensorsReader& file);

// Checks whether `job` can continue from the checkpoint at `path`. kInvalidArgument: the run
// counted updates in another way (W0548), or the checkpoint has more steps than the job (W0923).
// Precondition: compiler::CheckTraining is ok.
absl::Status CheckResume(const proto::Job& job, const std::string& path,
                         const CheckpointHeader& header);

// Returns the offset at which a step of `samples_per_step` samples goes on where the run of the
// checkpoint stopped (store::BatchPosition). A checkpoint without a cursor has steps of that size.
int64_t SampleOffset(const CheckpointHeader& header, int64_t samples_per_step);

// Returns a sentence if the run of the checkpoint drew data and random numbers from another seed
// than `job` does, so that samples repeat, else "".
std::string SeedChange(const proto::Job& job, const CheckpointHeader& header);

// Returns a sentence if `job` follows another schedule than the run of the checkpoint did, else "".
std::string ScheduleChange(const proto::Job& job, const CheckpointHeader& header);

// Returns "0.001 after 10 updates of warm-up, COSINE to 0 at update 60".
std::string ScheduleText(const proto::Job& job);

}  // namespace weir::train
