// Sets gRPC up for the control plane: silent, over mTLS with the job's authority, with small limits
// and without the features that reach outside (proxies, service configs, port sharing).
// Thread rule: any thread.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/control/credentials.h"

namespace weir::control {

inline constexpr char kHelloKey[] = "weir-hello-bin";
// The limit of all metadata of a call together; a hello needs no more.
inline constexpr int kMetadataBytesMax = 16 << 10;

// Makes gRPC print nothing from now on, in this process, and keeps its mutexes from looking for
// deadlocks, which a distribution's build of Abseil may do at each lock.
void PrepareGrpc();

std::shared_ptr<grpc::ServerCredentials> CoordinatorCredentials(const Credentials& credentials);
// Sets all options but the services and the listening ports. gRPC may hold memory, and a connection
// may take time to prove its identity, as this many workers need.
void LimitServer(int num_workers, grpc::ServerBuilder* builder);

// Returns a channel to the coordinator of `job_id` at `address`; the channel connects at the first
// call.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& job_id,
                                         const Credentials& credentials);

// Returns a time of CLOCK_MONOTONIC in gRPC's form.
gpr_timespec MonotonicDeadline(int64_t at_ns);

// Converts statuses between the two forms with the same codes and, if it fits metadata, the same
// problem. A message that would not fit metadata is cut.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace weir::control
