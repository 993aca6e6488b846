// A job writes these facts about itself into a checkpoint in one file, and goes on from the facts
// of a checkpoint in any form (runtime/store/checkpoint_metadata.h). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/safetensors.h"

namespace weir::train {

// Returns the metadata of a checkpoint of `job` after `step` steps and `samples` samples.
std::map<std::string, std::string> CheckpointMetadata(const proto::Job& job, int64_t step,
                                                      int64_t samples);

// kInvalidArgument (W0076): `file` is no checkpoint.
absl::Status CheckIsCheckpoint(const store::SafetensorsReader& file);

// Checks whether `job` can continue from the checkpoint at `path`. kInvalidArgument: the run
// counted updates in another way (W0548), or the checkpoint has more steps than the job (W0923).
// kDataLoss (W0718): its cursor has more samples than a run can count.
// Precondition: compiler::CheckTraining is ok.
absl::Status CheckResume(const proto::Job& job, const std::string& path,
                         const store::CheckpointFacts& facts);

// Returns the offset at which a step of `samples_per_step` samples goes on where the run of the
// checkpoint stopped (store::BatchPosition). Precondition: the checkpoint has a cursor, as all have
// that passed CheckCheckpoint (session_states.h).
int64_t SampleOffset(const store::CheckpointFacts& facts, int64_t samples_per_step);

// Returns a sentence if the run of the checkpoint drew data and random numbers from another seed
// than `job` does, so that samples repeat, else "". Precondition as of SampleOffset.
std::string SeedChange(const proto::Job& job, const store::CheckpointFacts& facts);

// Returns a sentence if `job` follows another schedule than the run of the checkpoint did, else "".
std::string ScheduleChange(const proto::Job& job, const store::CheckpointFacts& facts);

// Returns "0.001 after 10 updates of warm-up, COSINE to 0 at update 60".
std::string ScheduleText(const proto::Job& job);

}  // namespace weir::train
