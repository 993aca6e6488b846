// Makes small changes to a job that keep it a job: a field is dropped, repeated or swapped with its
// neighbour, a number becomes a critical one, or a name becomes another name of the job. Such
// changes reach deeper into the compiler than changes of bytes, which mostly end in the parser.
// Thread rule: pure function of job and seed.
#pragma once

#include <cstdint>

#include "google/protobuf/message.h"
#include "proto/job.pb.h"

namespace weir::fuzz {

// Makes one to four changes to `job`. The same seed makes the same changes.
void MutateJob(uint64_t seed, proto::Job* job);

// The same for a message of another kind.
void MutateMessage(uint64_t seed, google::protobuf::Message* message);

}  // namespace weir::fuzz
