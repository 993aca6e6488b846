// A rhythm as a message, so that one process solves the rhythm of a job and others use the result.
// Thread rule: pure functions.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/job_rhythm.h"
#include "proto/rhythm.pb.h"

namespace weir::compiler {

proto::RhythmSpec ToProto(const JobRhythm& rhythm);

// kInvalidArgument: a station is negative, an item or index is beyond any program, or the message
// leaves out places of an item. The times are not checked here: each rank proves its plan with
// them.
absl::StatusOr<JobRhythm> RhythmFromProto(const proto::RhythmSpec& spec);

}  // namespace weir::compiler
