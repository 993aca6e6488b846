// The devices that a job asks for, and what it has of them if it does not say.
// Thread rule: any thread.
#pragma once

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir::train {

// Replaces what the job leaves open by what it gets: "auto" by a kind of device that this machine
// has, and numbers of queues and acts that are 0 by the defaults of a GPU. The defaults of other
// kinds stay 0. kInvalidArgument (W0529) for a kind that does not exist, kUnavailable (W0552) for
// one that this program was built without, kInvalidArgument (W0956, W0957) for collectives that the
// device cannot have.
absl::Status SettleDevice(proto::Job* job);

// Checks the queues and the acts that the job asks for: kInvalidArgument (W0529).
absl::Status CheckDevice(const proto::Runtime& runtime);

}  // namespace weir::train
