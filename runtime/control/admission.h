// Who may join a job: what a worker's call must carry and prove before the coordinator serves it.
// Not here: whether its place is free; the coordinator knows that.
// Thread rule: pure functions of their arguments.
#pragma once

#include "absl/status/status.h"
#include "proto/control.pb.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/grpc_setup.h"

namespace weir {

// Reads the hello of a call. kPermissionDenied (W0606) if there is not exactly one, or if the
// certificate of the connection is not that of the worker which the hello names.
absl::Status ReadHello(const grpc::ServerContext& context, control::Hello* hello);

// kFailedPrecondition (W0605) if the worker is of another job, or of an earlier incarnation of this
// one.
absl::Status CheckJob(const control::Hello& hello, const CoordinatorOptions& options);

// kFailedPrecondition (W0604) if the worker runs another build: plans of two builds need not fit
// together.
absl::Status CheckBuild(const control::Hello& hello, const CoordinatorOptions& options);

}  // namespace weir
