// Decides which workers may join a job: a worker's call must carry and prove its identity before
// the coordinator serves the call. Not here: whether the worker's place is free, which the
// coordinator knows.
// Thread rule: pure functions of their arguments.
#pragma once

#include "absl/status/status.h"
#include "proto/control.pb.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/grpc_setup.h"

namespace weir::control {

// Reads the hello of a call. kPermissionDenied (W0606) if there is not exactly one hello, or if the
// certificate of the connection is not that of the worker that the hello names.
absl::Status ReadHello(const grpc::ServerContext& context, proto::Hello* hello);

// kFailedPrecondition (W0605) if the worker is of another job.
absl::Status CheckJob(const proto::Hello& hello, const CoordinatorOptions& options);

// Returns kFailedPrecondition (W0605) for a worker of another epoch than the present one.
absl::Status OfAnotherEpoch(const proto::Hello& hello, uint32_t epoch);

// kInvalidArgument (W0615) for options with which no coordinator can work.
absl::Status CheckOptions(const CoordinatorOptions& options);

// kFailedPrecondition (W0604) if the worker runs another build, since plans of two builds need not
// fit together.
absl::Status CheckBuild(const proto::Hello& hello, const CoordinatorOptions& options);

}  // namespace weir::control
